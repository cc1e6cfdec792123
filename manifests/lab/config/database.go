package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// mainDatabase is the engine that the table, the demo and the rules' lab tests are about.
const mainDatabase = "postgresql"

// Database is a file in databases/, rendered for a class.
type Database struct {
	// Programs are those of build/bin that it needs beside the lab's own.
	Programs []string `yaml:"programs"`
	// Packages names, for each program of the system it needs, the Debian package that has it.
	Packages map[string]string `yaml:"packages"`
	// Processes is a process-compose processes section.
	Processes map[string]any `yaml:"processes"`
}

// database renders a file in databases/ for the class.
func (c *Class) database(name string) (*Database, error) {
	var d Database
	if err := renderYAML(filepath.Join(c.Lab.Files, "databases", name+".yaml"), c, &d); err != nil {
		return nil, err
	}
	return &d, nil
}

// Database returns what an engine of Databases needs; it is the same for all classes.
func (l *Lab) Database(name string) (*Database, error) { return l.Classes[0].database(name) }

// Has reports whether the lab has servers of an engine.
func (l *Lab) Has(database string) bool { return slices.Contains(l.Databases, database) }

// checkDatabases refuses engines that have no file; an unknown one is answered with the known.
func (l *Lab) checkDatabases() error {
	paths, err := filepath.Glob(filepath.Join(l.Files, "databases", "*.yaml"))
	if err != nil {
		return err
	}
	var known []string
	for _, p := range paths {
		known = append(known, strings.TrimSuffix(filepath.Base(p), ".yaml"))
	}
	for i, name := range l.Databases {
		switch {
		case !slices.Contains(known, name):
			return fmt.Errorf("unknown database %q in LAB_DATABASES; there are: %s", name, strings.Join(known, " "))
		case slices.Contains(l.Databases[:i], name):
			return fmt.Errorf("database %q is named twice in LAB_DATABASES", name)
		}
	}
	if !l.Has(mainDatabase) {
		return fmt.Errorf("LAB_DATABASES must have %s: the table shows its load", mainDatabase)
	}
	return nil
}
