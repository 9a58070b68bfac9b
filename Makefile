# SPDX-License-Identifier: Apache-2.0
# The few commands that one needs; what they do is in the scripts. The first set-up takes some minutes.
.PHONY: all check check-long demo demo-cluster asan tsan fuzz bench tidy format clean

all:
	@tools/setup
	@tools/build

check:
	@./check
check-long:
	@./check --long
demo:
	@./demo
demo-cluster:
	@./demo cluster
asan tsan:
	@tools/setup packages python model mooncake $@
	@"$$(tools/setup --print python)" tools/check.py $@
fuzz: all
	@"$$(tools/setup --print python)" tools/check.py fuzz
bench: all
	@build/tarn bench pool
	@build/tarn bench mooncake --python /usr/bin/python3
	@build/tarn bench engine --model "$$(tools/setup --print model)"
tidy: all
	@tools/format && tools/tidy.py . && tools/clang-tidy
format:
	@tools/format --fix
clean:
	@rm -rf build build-asan build-tsan build-fuzz
