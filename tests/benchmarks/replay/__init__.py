"""Parts of the replay of Recall: id traces, their edits, policies to compare, simulated streams, costs, the table."""
