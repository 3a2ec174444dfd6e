"""Parts of the replay of Recall: id traces, their edits, policies to compare, a simulated stream, costs and the table."""
