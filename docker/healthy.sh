#!/bin/bash
# Exit code 0 when the broker in this container takes messages. By bash alone: a Python that starts each
# time would take more of a core than an idle broker. ROCKHOPPER_HTTPPORT or ROCKHOPPER_HTTP_PORT names another port than 9464.
# Where tlsServerMode=enforcing no plain request is answered: give the container a check of your own.
exec 3<>"/dev/tcp/127.0.0.1/${ROCKHOPPER_HTTPPORT:-${ROCKHOPPER_HTTP_PORT:-9464}}" || exit 1
printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3
read -r _ code _ <&3 && [ "$code" = 200 ]
