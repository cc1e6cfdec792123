package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/plumbline/plumbline/manifests/release/stage"
)

// host packs, for each architecture, what `plumbline try` needs on a machine where nothing is installed.
func (r release) host() error {
	for _, arch := range r.archs {
		folder := "plumbline-" + r.version + "/"
		// Folders of their own, as the programs run as nobody, who may read them whatever the umask is.
		packed := map[string][]byte{folder: nil, folder + "blockio/": nil}
		var programs []string
		for name, file := range map[string]string{
			"plumbline": "build/plugin/linux-" + arch + "/" + plugin, "plumbline-agent": "build/linux/" + arch + "/plumbline-agent",
			"ebpf_exporter": "build/linux/" + arch + "/ebpf_exporter", "blockio/blkio.yaml": "exporters/blockio/blkio.yaml",
			"blockio/blkio.bpf.o": "exporters/blockio/blkio.bpf.o", "LICENSE": "LICENSE",
		} {
			text, err := os.ReadFile(filepath.Join(r.root, filepath.FromSlash(file)))
			if err != nil {
				return err
			}
			packed[folder+name] = text
			if filepath.Dir(file) != "exporters/blockio" && name != "LICENSE" {
				programs = append(programs, folder+name)
			}
		}
		if err := stage.Pack(filepath.Join(r.out, fmt.Sprintf("plumbline-%s-linux-%s.tar.gz", r.version, arch)), packed, programs...); err != nil {
			return err
		}
	}
	return nil
}
