// Command csi-sidecar stands for two of Kubernetes' sidecars of CSI drivers, whose modules the Go module proxy does not serve: called
// node-driver-registrar it registers a driver with the kubelet, called livenessprobe it answers the kubelet's probes for one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func main() {
	address := flag.String("csi-address", "/csi/csi.sock", "the driver's socket")
	path := flag.String("kubelet-registration-path", "", "the same, where the kubelet finds it")
	port := flag.String("health-port", "9808", "where the kubelet's probes are answered")
	flag.String("v", "", "ignored")
	flag.Parse()
	conn, err := grpc.NewClient("unix://"+*address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err == nil {
		switch driver := csi.NewIdentityClient(conn); filepath.Base(os.Args[0]) {
		case "node-driver-registrar":
			err = register(driver, *path)
		case "livenessprobe":
			err = probe(driver, ":"+*port)
		default:
			err = errors.New("called by neither of its names")
		}
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], err)
	os.Exit(1)
}

// registrar is what the kubelet calls.
type registrar struct {
	registration.UnimplementedRegistrationServer
	info *registration.PluginInfo
}

func (r registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return r.info, nil
}

func (r registrar) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !status.PluginRegistered {
		fmt.Fprintf(os.Stderr, "the kubelet refuses %s: %s\n", r.info.Name, status.Error)
		os.Exit(1)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

func register(driver csi.IdentityClient, path string) error {
	info, err := driver.GetPluginInfo(context.Background(), &csi.GetPluginInfoRequest{})
	if err != nil {
		return err
	}
	socket := "/registration/" + info.Name + "-reg.sock"
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, registrar{info: &registration.PluginInfo{Type: registration.CSIPlugin, Name: info.Name, Endpoint: path,
		SupportedVersions: []string{"1.0.0"}}})
	return server.Serve(listener)
}

func probe(driver csi.IdentityClient, address string) error {
	http.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
		defer cancel()
		if _, err := driver.Probe(ctx, &csi.ProbeRequest{}); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	return http.ListenAndServe(address, nil)
}
