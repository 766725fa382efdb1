// Package distribution knows where the parts of Drydock are that lie beside the
// drydock program: in a checkout of the source, where the build puts them, and in
// an unpacked release. It only looks; it reads no part and makes none.
package distribution

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Parts are the files that `drydock run` works with, all of them there.
type Parts struct {
	// Virtctl is the program.
	Virtctl string
	// Images are the image archives.
	Images []string
	// Install is what kustomize or kubectl installs Drydock from, KubeVirt the
	// object that configures it, Example a virtual machine.
	Install, KubeVirt, Example string
}

// place is where the parts are below the folder that holds the folder of the programs.
type place struct {
	images, install, kubevirt, example string
	// remedy is what to do about a part that is missing.
	remedy string
}

// The marker of a checkout is a file that no release has.
const marker = "go.mod"

var (
	checkout = place{
		images: "build/images", install: "config", kubevirt: "config/kubevirt/emulated.yaml",
		example: "examples/vm.yaml", remedy: "make it with: make build images",
	}
	release = place{
		images: "images", install: "manifests/drydock.yaml", kubevirt: "manifests/kubevirt-emulated.yaml",
		example: "examples/vm.yaml", remedy: "unpack the release archive again",
	}
)

// required are the images without which nothing runs.
var required = []string{"virt.tar", "virt-launcher.tar", "virt-importer.tar", "test-guest.tar"}

// Find returns the parts that belong to the programs in a folder.
func Find(programs string) (Parts, error) {
	top, at := filepath.Dir(programs), release
	if _, err := os.Stat(filepath.Join(top, marker)); err == nil {
		at = checkout
	}
	parts := Parts{
		Virtctl:  filepath.Join(programs, "virtctl"),
		Install:  filepath.Join(top, at.install),
		KubeVirt: filepath.Join(top, at.kubevirt),
		Example:  filepath.Join(top, at.example),
	}
	wanted := []string{parts.Virtctl, parts.Install, parts.KubeVirt, parts.Example}
	for _, name := range required {
		wanted = append(wanted, filepath.Join(top, at.images, name))
	}
	missing := slices.DeleteFunc(wanted, func(name string) bool {
		_, err := os.Stat(name)
		return err == nil
	})
	if len(missing) > 0 {
		return Parts{}, fmt.Errorf("looking for what belongs to this program: %s is missing; %s", strings.Join(missing, ", "), at.remedy)
	}
	var err error
	parts.Images, err = filepath.Glob(filepath.Join(top, at.images, "*.tar"))
	if err != nil {
		return Parts{}, fmt.Errorf("listing the images in %s: %w", filepath.Join(top, at.images), err)
	}
	return parts, nil
}
