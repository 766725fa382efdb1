// Package distribution finds the files of Drydock beside the drydock program, in a checkout after a build or in
// an unpacked release. It must neither read nor create them.
package distribution

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Parts are the files for `drydock run`; all of them exist.
type Parts struct {
	Virtctl string
	Images  []string
	// Install is a kustomization or manifest, KubeVirt the object that configures Drydock.
	Install, KubeVirt, Example string
}

// place has the paths of the parts, relative to the parent of the programs' folder.
type place struct {
	images, install, kubevirt, example string
	remedy                             string
}

// marker is a file that a checkout has and a release has not.
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

// required are the images that every cluster needs.
var required = []string{"virt.tar", "virt-launcher.tar", "virt-importer.tar", "test-guest.tar"}

// Find returns the parts that belong to a folder's programs.
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
