package main

import (
	"os"
	"testing"
)

// The generated questions are those of the sources.
func TestCurrent(t *testing.T) {
	want, err := source()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../portable.go")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("portable.go is not what is generated from source.go; run make generate")
	}
}
