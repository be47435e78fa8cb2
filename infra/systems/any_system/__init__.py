# SPDX-License-Identifier: Apache-2.0
"""Any server as the system under test, described by a TOML file (docs/any-system.md).

`description` reads the file, `templates` fills in the names and addresses of nodes, `files` fetches what they need,
`server` is one process on one node, and `topology` puts them together.
"""
