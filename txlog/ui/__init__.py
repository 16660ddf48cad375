"""`txlog ui`: a page and a JSON API over one log. Needs the extra `ui`."""
