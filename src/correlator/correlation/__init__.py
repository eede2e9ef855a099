"""From a red test to its cause and its victims: answers that are worked out of the facts when somebody asks."""
