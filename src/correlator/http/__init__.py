"""What every HTTP server of Correlator is made of: connections, requests and their bodies, problems, figures."""
