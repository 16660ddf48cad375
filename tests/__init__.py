"""Tests: units mirror the packages; the other folders tell what they prove in their names."""
