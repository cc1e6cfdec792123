package contract

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/plumbline/plumbline/tests/testkit"
)

var (
	pageLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	pageHeading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
)

// anchors are the names that a page's headings have in links.
func anchors(page string) (all []string) {
	for _, m := range pageHeading.FindAllStringSubmatch(page, -1) {
		all = append(all, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, m[1]))
	}
	return all
}

// eachFile calls f for each file of the repository that people write, with its path below the root.
func eachFile(t *testing.T, f func(name string, text []byte)) {
	t.Helper()
	root := testkit.Root()
	if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "build" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != root):
			return filepath.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil {
			f(name, text)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// Every link of a page to a file of the repository, or to a heading of it, leads there.
func TestLinksOfPages(t *testing.T) {
	pages, links := map[string][]byte{}, 0
	eachFile(t, func(name string, text []byte) {
		if filepath.Ext(name) == ".md" {
			pages[name] = text
		}
	})
	for name, text := range pages {
		for _, m := range pageLink.FindAllStringSubmatch(string(text), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, ":") {
				continue // on the web
			}
			links++
			to := name
			if target != "" {
				to = filepath.Join(filepath.Dir(name), target)
			}
			page, err := os.Stat(filepath.Join(testkit.Root(), to))
			switch {
			case err != nil:
				t.Errorf("%s: %s leads nowhere", name, m[1])
			case anchor != "" && !page.IsDir() && !slices.Contains(anchors(string(pages[to])), anchor):
				t.Errorf("%s: %s: there is no such heading", name, m[1])
			}
		}
	}
	if links < 100 {
		t.Errorf("%d links of pages found", links)
	}
}
