package volume

import "testing"

// What a mount shows whose folder was deleted is in no folder that has its name now, but still on its file system; two
// mounts of it show one place.
func TestDeletedFolder(t *testing.T) {
	one := Mount{Point: "/data", Device: "8:1", Root: "/srv/pg//deleted"}
	two := Mount{Point: "/var/lib/kubelet/x", Device: "8:1", Root: "/srv/pg//deleted"}
	place, ok := one.At("/data/base")
	if same, _ := two.At("/var/lib/kubelet/x/base"); !ok || same != place {
		t.Errorf("%v and %v are one place", place, same)
	}
	found := []Found{{Identity: Identity{Volume: "new"}, Place: Place{"8:1", "/srv/pg"}}}
	if f, ok := Holding(found, place); ok {
		t.Errorf("it is on %s, which is another folder of its name", f.Volume)
	}
	found = append(found, Found{Identity: Identity{Volume: "disk"}, Place: Place{"8:1", "/"}})
	if f, _ := Holding(found, place); f.Volume != "disk" {
		t.Errorf("it is on %q", f.Volume)
	}
	tables := &Tables{Host: []Mount{{Point: "/", Device: "8:1", Root: "/"}}, Others: [][]Mount{{{Point: "/", Device: "0:9", Root: "/"}, one}}, named: []bool{true}}
	if tables.inUse(Place{"8:1", "/srv/pg"}, false) {
		t.Error("the new folder is in use by who has the old one")
	}
	if !tables.inUse(place, true) && !tables.inUse(Place{"8:1", "//deleted/srv/pg"}, true) {
		t.Error("the old one is not in use")
	}
}
