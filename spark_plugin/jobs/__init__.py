"""Jobs that come with txlog; `spark-submit` or `python` runs their files."""
