package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed README.md
var readme string

// programs are the programs outside of images. The first two are also linked at the top.
var programs = []string{
	"drydock", "virtctl",
	"bridge", "containerd", "containerd-shim-runc-v2", "coredns", "drydock-cni", "drydock-csi-node", "drydock-policies", "drydock-storage",
	"host-local", "loopback", "multus", "pause", "portmap", "runc", "static",
}

const definitions = "volumesnapshot-crds.yaml"

// file is a file of the release. Exactly one of data, source and link is set.
type file struct {
	name   string
	mode   fs.FileMode
	data   []byte
	source string
	link   string
}

func (f file) open() (io.ReadCloser, error) {
	if f.source == "" {
		return io.NopCloser(bytes.NewReader(f.data)), nil
	}
	return os.Open(f.source)
}

func gather(o options) ([]file, error) {
	if o.version == "" {
		return nil, fmt.Errorf("naming the release: give its version with -version")
	}
	files := []file{
		{name: "README.md", mode: 0o644, data: []byte(strings.ReplaceAll(readme, "VERSION", o.version))},
		{name: "LICENSE", mode: 0o644, source: "LICENSE"},
		{name: "manifests/drydock.yaml", mode: 0o644, source: o.install},
		{name: "manifests/kubevirt.yaml", mode: 0o644, source: "config/kubevirt/kubevirt.yaml"},
		{name: "manifests/kubevirt-emulated.yaml", mode: 0o644, source: "config/kubevirt/emulated.yaml"},
		{name: "manifests/dashboards.yaml", mode: 0o644, source: o.dashboards},
		{name: "manifests/prometheus-rules.yaml", mode: 0o644, source: "config/monitoring/rules.yaml"},
		{name: "manifests/web-console.yaml", mode: 0o644, source: "config/web/web.yaml"},
		{name: "bin/" + definitions, mode: 0o644, source: filepath.Join(o.bin, definitions)},
	}
	if o.hasPages() {
		files = append(files, file{name: "NOTICES-web-console.txt", mode: 0o644, source: filepath.Join(o.web, "assets/NOTICES.txt")})
	}
	for i, name := range programs {
		files = append(files, file{name: "bin/" + name, mode: 0o755, source: filepath.Join(o.bin, name)})
		if i < 2 {
			files = append(files, file{name: name, link: "bin/" + name})
		}
	}
	for _, name := range imageNames() {
		files = append(files, file{name: "images/" + name + ".tar", mode: 0o644, source: filepath.Join(o.images, name+".tar")})
	}
	for _, pattern := range []string{"examples/*.yaml", "examples/maintenance/*.yaml"} {
		examples, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("listing the examples %s: %w", pattern, err)
		}
		if len(examples) == 0 {
			return nil, fmt.Errorf("there is no example %s", pattern)
		}
		for _, name := range examples {
			files = append(files, file{name: name, mode: 0o644, source: name})
		}
	}
	return files, nil
}

// hasPages reports whether virtctl was built after `make web`.
func (o options) hasPages() bool {
	_, err := os.Stat(filepath.Join(o.web, "index.html"))
	return err == nil
}

// checksums returns the output of sha256sum for the files, sorted by name.
func checksums(files []file) ([]byte, error) {
	var lines []string
	for _, f := range files {
		if f.link != "" {
			continue
		}
		sum, err := f.sha256()
		if err != nil {
			return nil, err
		}
		lines = append(lines, sum+"  "+f.name+"\n")
	}
	slices.SortFunc(lines, func(a, b string) int { return cmp.Compare(a[64:], b[64:]) })
	return []byte(strings.Join(lines, "")), nil
}

func (f file) sha256() (string, error) {
	from, err := f.open()
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", f.name, err)
	}
	defer func() { _ = from.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, from); err != nil {
		return "", fmt.Errorf("reading %s: %w", f.name, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
