package main

import (
	"path/filepath"
	"slices"
	"strings"
)

type use struct {
	Part string `json:"part"`
	// Cluster is the process's embedded cluster, if any.
	Cluster string `json:"cluster,omitempty"`
	// Guest is the VMI's namespace and name.
	Guest string `json:"guest,omitempty"`
	// PID distinguishes guests with the same name.
	PID int `json:"pid,omitempty"`
	// Package is the folder of the package whose test binary is the process or its ancestor.
	Package string `json:"package,omitempty"`
}

// Parts with a special treatment.
const (
	partGuest = "guests (QEMU)"
	partTest  = "test binaries"
	// The test guest's kernel needs C compilers.
	partImages = "images"
	partC      = "C compiler"
)

// parts maps programs to their common part. Other programs are parts of their own name.
var parts = map[string]string{
	"go": "compiler", "compile": "compiler", "link": "compiler", "asm": "compiler", "cgo": "compiler", "vet": "compiler",
	"gcc": partC, "cc1": partC, "as": partC, "ld": partC,
	"lint":       "linter",
	"mmdebstrap": "Debian packages", "dpkg-deb": "Debian packages", "apt-get": "Debian packages", "dpkg": "Debian packages",
	"containerd-shim": "containerd and runc", "containerd-shim-runc-v2": "containerd and runc", "containerd": "containerd and runc", "runc": "containerd and runc",
	"qemu-img": "qemu-img", "virtctl": "virtctl", "virt-launcher": "virt-launcher", "virt-importer": "virt-importer",
	"image-builder": partImages,
}

// embedded are the parts of the embedded Kubernetes, which share one program.
var embedded = []string{
	"kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "coredns", "kubectl", "deploy", "image", "up", "down",
}

type program struct {
	pid               int
	args, environment []string
	folder            string
}

// useOf returns the use of a process. It inherits unknown fields from its parent.
func useOf(p program, parent use) use {
	u := use{Cluster: parent.Cluster, Package: parent.Package}
	if name := environmentValue(p.environment, "DRYDOCK_NAME"); name != "" {
		u.Cluster = name
	}
	if len(p.args) > 2 && p.args[0] == "drydock" && p.args[1] == "supervisor" {
		u.Cluster = p.args[2]
	}
	if len(p.args) == 0 {
		u.Part = "the kernel"
		return u
	}
	u.Part = partOf(p.args, parent.Part)
	name := filepath.Base(p.args[0])
	switch {
	case strings.HasSuffix(name, ".test"):
		u.Part, u.Package = partTest, p.folder
	case strings.HasPrefix(name, "qemu-system"):
		u.PID = p.pid
		u.Guest, _, _ = strings.Cut(strings.TrimPrefix(after(p.args, "-name"), "guest="), ",")
	}
	return u
}

func partOf(args []string, parent string) string {
	name := filepath.Base(args[0])
	if part, ok := parts[name]; ok {
		return part
	}
	switch {
	case strings.HasPrefix(name, "qemu-system"):
		if strings.HasPrefix(after(args, "-name"), "guestfs") {
			return "libguestfs (QEMU)"
		}
		return partGuest
	case name == "virt" && len(args) > 1:
		return "virt-" + args[1]
	case name == "drydock":
		for _, arg := range args[1:] {
			if slices.Contains(embedded, arg) {
				return arg
			}
		}
		return "drydock"
	case name == "make" && parent == partImages:
		return partC
	case parent == "linter" || parent == "Debian packages" || parent == partC:
		return parent
	}
	return name
}

func after(args []string, flag string) string {
	if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

func environmentValue(environment []string, name string) string {
	for _, entry := range environment {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}
