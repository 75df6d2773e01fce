"""What people look at: one run's report, from its journal to JSON, HTML and Markdown, and the history of many."""
