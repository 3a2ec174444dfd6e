"""Reports for people: charts of a benchmark's figures."""
