package contract

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/ruletests"
)

var rangeAction = regexp.MustCompile(`\{\{-? *range (.*?)\}\}`)

// unordered returns the lists of a rules file's templates that are in no order: a query's results come in any.
func unordered(rules string) (lists []string) {
	for _, found := range rangeAction.FindAllStringSubmatch(rules, -1) {
		if !strings.Contains(found[1], "sortByLabel") {
			lists = append(lists, found[1])
		}
	}
	return lists
}

// The same alert reads the same at each evaluation: its lists are in order.
func TestListsAreInOrder(t *testing.T) {
	for _, path := range ruletests.Files(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, list := range unordered(string(text)) {
			t.Errorf("%s: %s: give it an order by sortByLabel", filepath.Base(path), list)
		}
	}
	if n := len(unordered(`{{- range $i, $p := query "up{a=%q}" }}{{ range . | sortByLabel "a" }}{{range .}}`)); n != 2 {
		t.Errorf("%d lists without an order are seen of 2", n)
	}
}
