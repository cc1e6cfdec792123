package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net/url"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"

	"github.com/plumbline/plumbline/manifests/images/debian"
)

// debianPackages are the packages that an image holds files of, by dpkg's paragraphs of them; the
// distribution they are of is in its os-release.
func debianPackages(statuses [][]byte, osRelease []byte) ([]cyclonedx.Component, error) {
	var components []cyclonedx.Component
	distribution := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(osRelease)); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), "=")
		distribution[key] = strings.Trim(value, `"'`)
	}
	for _, text := range statuses {
		p, err := debian.ReadStatus(text)
		if err != nil {
			return nil, err
		}
		if distribution["ID"] == "" || distribution["VERSION_ID"] == "" {
			return nil, fmt.Errorf("package %s: /etc/os-release does not name its distribution (ID, VERSION_ID)", p.Name)
		}
		purl := fmt.Sprintf("pkg:deb/%s/%s@%s?arch=%s&distro=%s-%s", distribution["ID"], url.QueryEscape(p.Name), url.QueryEscape(p.Version), p.Architecture,
			distribution["ID"], distribution["VERSION_ID"])
		components = append(components, cyclonedx.Component{Type: cyclonedx.ComponentTypeLibrary, BOMRef: purl, Name: p.Name, Version: p.Version, PackageURL: purl})
	}
	return components, nil
}
