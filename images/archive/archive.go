// Package archive writes container images as OCI archives: one tar file that containerd, podman and skopeo
// import, made without a registry or container engine, reproducible to the byte.
//
// It must not know the content of layers; package rootfs does.
package archive

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"drydock.dev/drydock/images/rootfs"
)

// nameAnnotation is containerd's annotation for an image's full name.
const nameAnnotation = "io.containerd.image.name"

// tagAnnotation is the OCI annotation for its tag.
const tagAnnotation = "org.opencontainers.image.ref.name"

// Image is a container image to write.
type Image struct {
	Name, Tag string
	Config    v1.Config
	// Layers begin with the lowest, which changes least.
	Layers []*rootfs.FS
}

// Write writes the archive atomically.
func (i Image) Write(to string) error {
	image, err := i.Assemble()
	if err != nil {
		return fmt.Errorf("assembling the image %s: %w", i.Name, err)
	}
	scratch, err := os.CreateTemp(filepath.Dir(to), ".image-")
	if err != nil {
		return fmt.Errorf("making the archive of %s: %w", i.Name, err)
	}
	defer func() { _ = os.Remove(scratch.Name()) }()
	defer func() { _ = scratch.Close() }()
	if err := i.writeLayout(scratch, image); err != nil {
		return fmt.Errorf("writing the archive of %s: %w", i.Name, err)
	}
	if err := scratch.Chmod(0o644); err != nil {
		return fmt.Errorf("writing the archive of %s: %w", i.Name, err)
	}
	if err := scratch.Close(); err != nil {
		return fmt.Errorf("writing the archive of %s: %w", i.Name, err)
	}
	return os.Rename(scratch.Name(), to)
}

// Assemble returns the image. Its layers are not compressed: they are only copied on one machine,
// and every node would have to uncompress them.
func (i Image) Assemble() (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, layer := range i.Layers {
		var content bytes.Buffer
		if err := layer.WriteTar(&content); err != nil {
			return nil, err
		}
		var err error
		image, err = mutate.AppendLayers(image, static.NewLayer(content.Bytes(), types.OCIUncompressedLayer))
		if err != nil {
			return nil, err
		}
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Architecture, file.OS = "amd64", "linux"
	file.Config = i.Config
	return mutate.ConfigFile(image, file)
}

func (i Image) writeLayout(w io.Writer, image v1.Image) error {
	archive := tar.NewWriter(w)
	index, err := i.index(image)
	if err != nil {
		return err
	}
	if err := writeFile(archive, "oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	if err := writeFile(archive, "index.json", index); err != nil {
		return err
	}
	manifest, err := image.RawManifest()
	if err != nil {
		return err
	}
	config, err := image.RawConfigFile()
	if err != nil {
		return err
	}
	for _, blob := range [][]byte{manifest, config} {
		digest, _, err := v1.SHA256(bytes.NewReader(blob))
		if err != nil {
			return err
		}
		if err := writeFile(archive, blobPath(digest), blob); err != nil {
			return err
		}
	}
	if err := writeLayers(archive, image); err != nil {
		return err
	}
	return archive.Close()
}

func writeLayers(archive *tar.Writer, image v1.Image) error {
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	for _, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			return err
		}
		content, err := layer.Compressed()
		if err != nil {
			return err
		}
		data, err := io.ReadAll(content)
		if err != nil {
			return err
		}
		if err := writeFile(archive, blobPath(digest), data); err != nil {
			return err
		}
	}
	return nil
}

func (i Image) index(image v1.Image) ([]byte, error) {
	digest, err := image.Digest()
	if err != nil {
		return nil, err
	}
	size, err := image.Size()
	if err != nil {
		return nil, err
	}
	return json.Marshal(v1.IndexManifest{
		SchemaVersion: 2,
		MediaType:     types.OCIImageIndex,
		Manifests: []v1.Descriptor{{
			MediaType:   types.OCIManifestSchema1,
			Digest:      digest,
			Size:        size,
			Platform:    &v1.Platform{Architecture: "amd64", OS: "linux"},
			Annotations: map[string]string{nameAnnotation: i.Name + ":" + i.Tag, tagAnnotation: i.Tag},
		}},
	})
}

func blobPath(digest v1.Hash) string { return "blobs/" + digest.Algorithm + "/" + digest.Hex }

func writeFile(archive *tar.Writer, name string, data []byte) error {
	err := archive.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg,
		Name:     name,
		Mode:     0o644,
		Size:     int64(len(data)),
		ModTime:  time.Unix(0, 0),
	})
	if err != nil {
		return err
	}
	_, err = archive.Write(data)
	return err
}
