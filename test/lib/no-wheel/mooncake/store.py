# SPDX-License-Identifier: Apache-2.0
"""What the real module says where a library of the system is missing."""
raise ImportError("libibverbs.so.1: cannot open shared object file: No such file or directory")
