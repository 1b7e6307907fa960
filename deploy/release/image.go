package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// nobody is the user in the image, by number, as Kubernetes' runAsNonRoot wants it.
const nobody = 65532

// image makes an OCI image of the linux binaries, one manifest for each, as a tar of an OCI layout. It
// has the binary, the authorities of Mozilla and an empty data directory: no shell, no root.
func (r *release) image(binaries map[target]string, work string) error {
	index := mutate.IndexMediaType(v1.ImageIndex(empty.Index), types.OCIImageIndex)
	for _, t := range r.targets {
		if t.os != "linux" {
			continue
		}
		one, err := r.imageOf(t, binaries[t])
		if err != nil {
			return fmt.Errorf("make the image for %s: %w", t.arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: one, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: t.os, Architecture: t.arch}}})
	}
	// The folder names the index, which a registry shows as the image.
	folder := filepath.Join(work, "image")
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	name := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.number()})
	if err := path.AppendIndex(index, name); err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	var entries []entry
	err = eachFile(folder, func(name string, data []byte) error {
		entries = append(entries, entry{name: name, mode: 0o644, data: data})
		return nil
	}, nil)
	if err != nil {
		return err
	}
	out, err := os.Create(r.file("auditrelay_" + r.number() + "_oci.tar"))
	if err != nil {
		return err
	}
	if err := writeTar(out, r.time, entries); err != nil {
		return err
	}
	return out.Close()
}

func (r *release) imageOf(t target, binary string) (v1.Image, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	const passwd = "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/var/lib/auditrelay:/sbin/nologin\n"
	var layers []v1.Layer
	for _, entries := range [][]entry{{
		{name: "etc/passwd", mode: 0o644, data: []byte(passwd)},
		{name: "etc/group", mode: 0o644, data: []byte("root:x:0:\nnonroot:x:65532:\n")},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: authorities()},
		{name: "etc/auditrelay/", mode: 0o755},
		{name: "var/lib/auditrelay/", mode: 0o700, uid: nobody},
	}, {
		{name: "usr/local/bin/auditrelay", mode: 0o755, data: program},
	}} {
		var raw bytes.Buffer
		if err := writeTar(&raw, r.time, entries); err != nil {
			return nil, err
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw.Bytes())), nil },
			tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer)
	}
	image, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), layers...)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created, file.Author = t.os, t.arch, v1.Time{Time: r.time}, "auditrelay"
	file.History = nil
	file.Config = v1.Config{
		User: fmt.Sprintf("%d:%d", nobody, nobody), WorkingDir: "/var/lib/auditrelay",
		Entrypoint: []string{"/usr/local/bin/auditrelay"}, Cmd: []string{"run"},
		Env:          []string{"PATH=/usr/local/bin", "AUDITRELAY_CONFIG=/etc/auditrelay/relay.yaml"},
		ExposedPorts: map[string]struct{}{"3100/tcp": {}, "9100/tcp": {}}, Volumes: map[string]struct{}{"/var/lib/auditrelay": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title": "auditrelay", "org.opencontainers.image.version": r.number(), "org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.source": "https://github.com/auditrelay/auditrelay",
		},
	}
	return mutate.ConfigFile(image, file)
}

// authorities are Mozilla's, as the version of their module in go.mod has them, and not those of the machine.
func authorities() []byte {
	var all bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&all, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // memory takes all
		}
	}
	return all.Bytes()
}
