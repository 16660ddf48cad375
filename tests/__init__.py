"""Tests: `unit` mirrors the packages; the names of the other folders say what they test."""
