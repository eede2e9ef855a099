"""Who is told of an incident, in which words, and how that reaches them whatever happens on the way."""
