package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/testkit"
)

func TestParseSetting(t *testing.T) {
	for line, want := range map[string]string{
		"cluster_name = 'main'":              "cluster_name=main",
		"cluster_name='15/main'  # added":    "cluster_name=15/main",
		"  Cluster_Name 'a''b'":              "cluster_name=a'b",
		`cluster_name = 'a\'b\\c'`:           `cluster_name=a'b\c`,
		"cluster_name = main# x":             "cluster_name=main",
		"cluster_name = ''":                  "cluster_name=",
		"include_dir 'conf.d'":               "include_dir=conf.d",
		"plpgsql.check = on":                 "plpgsql.check=on",
		"#cluster_name = 'main'":             "",
		"cluster_name = 'main":               "",
		"cluster_name":                       "",
		"":                                   "",
		"= x":                                "",
		"\x00\xff":                           "",
		"cluster_name = 'a' cluster_name='b": "cluster_name=a",
	} {
		name, value, ok := parseSetting(line + "\n")
		if got := name + "=" + value; ok != (want != "") || ok && got != want {
			t.Errorf("%q is %q, %v; want %q", line, got, ok, want)
		}
	}
}

// Whatever comes, what is read of it fits within what came.
func FuzzParseSetting(f *testing.F) {
	for _, s := range []string{"cluster_name = 'main'", `a='\`, "a='", "include x", "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if name, value, _ := parseSetting(line); len(name)+len(value) > len(line) {
			t.Errorf("%q is %q=%q", line, name, value)
		}
	})
}

// A server's name is read where PostgreSQL reads it, and where nothing but PostgreSQL's own files can be read.
func TestConfiguredName(t *testing.T) {
	for _, c := range []struct {
		name  string
		args  []string // DATA and ETC stand for folders
		files map[string]string
		make  func(t *testing.T, data, etc string) error
		want  string
	}{
		{name: "nothing"},
		{name: "postgresql.conf", files: map[string]string{"data/postgresql.conf": "port = 1\ncluster_name = 'a'\n"}, want: "a"},
		{name: "the last line counts", files: map[string]string{"data/postgresql.conf": "cluster_name = a\ncluster_name = b\n"}, want: "b"},
		{name: "ALTER SYSTEM counts more", files: map[string]string{"data/postgresql.conf": "cluster_name = a", "data/postgresql.auto.conf": "cluster_name = 'b'"}, want: "b"},
		{name: "the command line counts most", args: []string{"postgres", "-c", "cluster_name=c"},
			files: map[string]string{"data/postgresql.conf": "cluster_name = a", "data/postgresql.auto.conf": "cluster_name = 'b'"}, want: "c"},
		{name: "includes", files: map[string]string{
			"data/postgresql.conf": "cluster_name = a\ninclude 'sub/x.conf'\ninclude_if_exists 'none.conf'\n", "data/sub/x.conf": "include 'y.conf'\n", "data/sub/y.conf": "cluster_name = y\n"}, want: "y"},
		{name: "a folder, in order", files: map[string]string{
			"data/postgresql.conf": "include_dir 'conf.d'\n", "data/conf.d/20.conf": "cluster_name = second", "data/conf.d/10.conf": "cluster_name = first",
			"data/conf.d/.99.conf": "cluster_name = hidden", "data/conf.d/99.bak": "cluster_name = backup"}, want: "second"},
		{name: "Debian's file", args: []string{"postgres", "-D", "DATA", "-c", "config_file=ETC/postgresql.conf"},
			files: map[string]string{"etc/postgresql.conf": "cluster_name = '15/main'\ninclude_dir 'conf.d'\n", "etc/conf.d/x.conf": "# nothing"}, want: "15/main"},
		{name: "a folder of the configuration's own", args: []string{"postgres", "-D", "ETC"}, files: map[string]string{"etc/postgresql.conf": "cluster_name = e\n"}, want: "e"},
		{name: "no command line", files: map[string]string{"data/postmaster.opts": `/usr/bin/postgres "-D" "DATA" "-c" "cluster_name=opts"` + "\n"}, want: "opts"},
		{name: "a link, as operators make", files: map[string]string{"etc/real.conf": "cluster_name = linked"}, make: func(_ *testing.T, data, etc string) error {
			return os.Symlink(filepath.Join(etc, "real.conf"), filepath.Join(data, "postgresql.conf"))
		}, want: "linked"},
		{name: "files without end", files: map[string]string{"data/postgresql.conf": "include 'postgresql.conf'\ncluster_name = a\n"}, want: "a"},
		{name: "a large one", files: map[string]string{"data/postgresql.conf": "cluster_name = a\n" + strings.Repeat("#\n", maxConfig)}},
		{name: "a FIFO", make: func(_ *testing.T, data, _ string) error {
			return unix.Mkfifo(filepath.Join(data, "postgresql.conf"), 0o644)
		}},
		{name: "a device without end", make: func(t *testing.T, data, _ string) error {
			testkit.NeedRoot(t)
			return unix.Mknod(filepath.Join(data, "postgresql.conf"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5)))
		}},
		{name: "what only root may read", files: map[string]string{"etc/shadow": "cluster_name = secret"}, make: func(t *testing.T, data, etc string) error {
			testkit.NeedRoot(t)
			if err := os.Chmod(filepath.Join(etc, "shadow"), 0o600); err != nil {
				return err
			}
			return os.Symlink(filepath.Join(etc, "shadow"), filepath.Join(data, "postgresql.conf"))
		}},
		{name: "another user's", files: map[string]string{"data/postgresql.conf": "cluster_name = others"}, make: func(t *testing.T, data, _ string) error {
			testkit.NeedRoot(t)
			return os.Chown(filepath.Join(data, "postgresql.conf"), 4711, 4711)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			top := t.TempDir()
			data, etc := filepath.Join(top, "data"), filepath.Join(top, "etc")
			fill := strings.NewReplacer("DATA", data, "ETC", etc)
			for _, folder := range []string{data, etc, filepath.Join(top, "7")} {
				if err := os.MkdirAll(folder, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for path, text := range c.files {
				path = filepath.Join(top, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(fill.Replace(text)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			const user = 4242 // whose files these are not, but everybody may read what is root's
			p := newProcess(top, 7)
			p.user = user
			if os.Geteuid() != 0 {
				p.user = uint32(os.Geteuid())
			}
			for _, a := range c.args {
				p.args = append(p.args, fill.Replace(a))
			}
			if c.files["data/postmaster.opts"] != "" {
				if err := os.Chown(filepath.Join(data, "postmaster.opts"), int(p.user), -1); err != nil {
					t.Fatal(err)
				}
			}
			if c.make != nil {
				if err := c.make(t, data, etc); err != nil {
					t.Fatal(err)
				}
			}
			for name, target := range map[string]string{"cwd": data, "root": "/"} {
				if err := os.Symlink(target, filepath.Join(top, "7", name)); err != nil {
					t.Fatal(err)
				}
			}
			s := &Server{DBSystem: PostgreSQL}
			if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte("15\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := p.readFiles(s); err != nil {
				t.Fatal(err)
			}
			if len(p.args) > 0 && s.Name == "" {
				s.Name = setting(p.args, nameSetting) // as a scan does
			}
			if s.Name != c.want {
				t.Errorf("name %q, want %q", s.Name, c.want)
			}
			if s.DataDirectory != data || s.DataID == "" || p.apart() {
				t.Errorf("data directory %q, number %q, apart %v", s.DataDirectory, s.DataID, p.apart())
			}
			// The user that started it may have named it, if neither its command line nor what it wrote of that is
			// known.
			if want := len(c.args) == 0 && c.files["data/postmaster.opts"] == ""; s.NoName != want {
				t.Errorf("its name may be another one: %v, want %v", s.NoName, want)
			}
		})
	}
}

// The number of a data directory is the same whenever it is read, and another one for each directory.
func TestDataID(t *testing.T) {
	seen := map[string]bool{}
	for range 2 {
		data := t.TempDir()
		for i := range 2 {
			procfs := t.TempDir()
			if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte("15\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(procfs, fmt.Sprint(7+i)), 0o755); err != nil {
				t.Fatal(err)
			}
			for name, target := range map[string]string{"cwd": data, "root": "/"} {
				if err := os.Symlink(target, filepath.Join(procfs, fmt.Sprint(7+i), name)); err != nil {
					t.Fatal(err)
				}
			}
			s := &Server{DBSystem: PostgreSQL}
			p := newProcess(procfs, 7+i)
			p.user = uint32(os.Geteuid())
			if err := p.readFiles(s); err != nil {
				t.Fatal(err)
			}
			seen[s.DataID] = true
			// 32 bits are found by trying paths.
			s.Apart = true
			if name := s.DefaultName(); len(s.DataID) != 32 || !strings.HasSuffix(name, "-"+s.DataID[:8]) {
				t.Errorf("number %q, name %q", s.DataID, name)
			}
			if !s.Owned {
				t.Error("it is not the server's own")
			}
		}
	}
	if len(seen) != 2 || seen[""] {
		t.Errorf("numbers %v of two directories", seen)
	}
}

// Addresses are as the kernel prints them.
func TestParseLocal(t *testing.T) {
	for text, want := range map[string]string{
		"0100007F:1538":                         "127.0.0.1:5432",
		"00000000:0CEA":                         "0.0.0.0:3306",
		"00000000000000000000000000000000:1538": "[::]:5432",
		"0000000000000000FFFF00000100007F:1538": "127.0.0.1:5432",
		"B80D01200000000067452301EFCDAB89:0001": "[2001:db8::123:4567:89ab:cdef]:1",
		"0100007F":                              "",
		"xx:1538":                               "",
		"01007F:1538":                           "",
	} {
		got, err := parseLocal(text)
		if (err == nil) != (want != "") || err == nil && got.String() != want {
			t.Errorf("%s is %s, %v; want %s", text, got, err, want)
		}
	}
}
