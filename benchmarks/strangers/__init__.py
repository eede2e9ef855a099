"""A second simulator, written from the design alone: another hand, other tables, other habits."""
