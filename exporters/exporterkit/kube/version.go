package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plumbline/plumbline/exporters/exporterkit/label"
)

// versionError is the error of a kind that the API server serves in versions only that are not known here.
type versionError struct{ served, known []string }

func (e versionError) Error() string {
	return fmt.Sprintf("the API server serves version %s, and this program knows %s", strings.Join(e.served, ", "), strings.Join(e.known, ", "))
}

// elsewhere handles a kind that is not served in the version that was tried: it queries the API server for the versions
// served. The first known one is tried next, at once. Without any, the error is missing, or a versionError.
func (c *Objects) elsewhere(ctx context.Context, k *kind, missing error) error {
	if k.Group == "" {
		return missing
	}
	var group metav1.APIGroup
	if err := c.discover(ctx, "/apis/"+k.Group, &group); err != nil {
		return missing
	}
	var served []string
	for _, v := range group.Versions {
		var list metav1.APIResourceList
		if err := c.discover(ctx, "/apis/"+v.GroupVersion, &list); err != nil {
			continue
		}
		if slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == k.Resource }) {
			served = append(served, label.Value(v.Version))
		}
	}
	for _, version := range k.Versions {
		if slices.Contains(served, version) && version != k.version {
			k.version = version
			return nil
		}
	}
	k.version = ""
	if len(served) == 0 || slices.ContainsFunc(k.Versions, func(v string) bool { return slices.Contains(served, v) }) {
		return missing // or it came a moment ago
	}
	return versionError{served, k.Versions}
}

// discover reads a page of the API server's discovery.
func (c *Objects) discover(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	body, err := c.get(ctx, path, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	return json.NewDecoder(body).Decode(into)
}
