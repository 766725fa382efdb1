// Package image keeps container images without a registry: it builds the two images that every node needs, stores
// the archives that the user loads, and imports them into a node's containerd. It must not build the user's
// images.
package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// FromBinary writes the image of one static program.
func FromBinary(ref, binary, archive string) error {
	program, err := os.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("reading the program of image %s: %w", ref, err)
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	var errs []error
	// These are the mount points that a read-only root must have.
	for _, dir := range []string{"dev", "etc", "proc", "sys", "tmp"} {
		errs = append(errs, w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}))
	}
	errs = append(errs, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: filepath.Base(binary), Mode: 0o755, Size: int64(len(program))}))
	_, err = w.Write(program)
	if err := errors.Join(append(errs, err, w.Close())...); err != nil {
		return fmt.Errorf("packing the program of image %s: %w", ref, err)
	}
	img, err := mutate.AppendLayers(empty.Image, static.NewLayer(layer.Bytes(), types.DockerUncompressedLayer))
	if err != nil {
		return fmt.Errorf("putting image %s together: %w", ref, err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return fmt.Errorf("reading the description of image %s: %w", ref, err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{Entrypoint: []string{"/" + filepath.Base(binary)}}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return fmt.Errorf("describing image %s: %w", ref, err)
	}
	tag, err := name.NewTag(ref)
	if err != nil {
		return fmt.Errorf("naming image %s: %w", ref, err)
	}
	if err := tarball.WriteToFile(archive, tag, img); err != nil {
		return fmt.Errorf("writing the archive of image %s: %w", ref, err)
	}
	return nil
}
