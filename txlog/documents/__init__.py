"""What `-o json` and the page show: descriptions as JSON documents. Pure."""
