// Command summary reads what `go test -json` writes and says it as `go test` does, a line for each package and the output of what failed, and at the
// very end once more what failed, bounded, and how many tests passed, failed and were skipped. Where CI is true, a skipped test is a failure.
//
//	go test -json ./... | go run ./tests/summary
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) > 1 {
		fmt.Fprintln(os.Stderr, "usage: go test -json PACKAGE... | summary")
		os.Exit(2)
	}
	r := newReport(os.Stdout, os.Getenv("CI") == "true")
	err := r.read(os.Stdin)
	if err == nil {
		err = r.end()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "summary:", err)
		os.Exit(1)
	}
}
