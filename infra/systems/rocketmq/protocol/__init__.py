# SPDX-License-Identifier: Apache-2.0
"""The harness' own client of RocketMQ 5's protocol.

client      one broker, as producers and consumers see it; every answer carries an outcome. Its parts: link,
            sending, pulling, popping, groups
admin       name servers, brokers and controllers, as administrators see them; errors are raised
outcomes    the meaning of an answer for an operation: a table
messages    a message as it is stored and sent
fastjson    the servers' dialect of JSON
codes       numbers of requests and answers
"""
