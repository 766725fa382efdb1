package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"drydock.dev/drydock/images/rootfs"
)

func sample() Image {
	lower, upper := rootfs.New(), rootfs.New()
	lower.File("/etc/passwd", 0o644, []byte("root"))
	upper.File("/usr/bin/program", 0o755, []byte("program"))
	return Image{
		Name: "drydock.dev/sample", Tag: "devel",
		Config: v1.Config{Entrypoint: []string{"/usr/bin/program"}, User: "107:107"},
		Layers: []*rootfs.FS{lower, upper},
	}
}

func unpack(t *testing.T, archive string) string {
	t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	folder := t.TempDir()
	for reader := tar.NewReader(file); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return folder
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		place := filepath.Join(folder, header.Name)
		if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(place, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnArchiveIsAValidImageUnderItsName(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "sample.tar")
	if err := sample().Write(archive); err != nil {
		t.Fatal(err)
	}
	index, err := layout.ImageIndexFromPath(unpack(t, archive))
	if err != nil {
		t.Fatal(err)
	}
	// The library can validate only compressed layers.
	if err := validate.Index(index, validate.Fast); err != nil {
		t.Errorf("the archive is not valid: %v", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Annotations[nameAnnotation] != "drydock.dev/sample:devel" {
		t.Errorf("the index names %+v", manifest.Manifests)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		checkDigest(t, layer)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "107:107" || config.Architecture != "amd64" || len(config.RootFS.DiffIDs) != 2 {
		t.Errorf("the configuration is %+v", config)
	}
}

func checkDigest(t *testing.T, layer v1.Layer) {
	t.Helper()
	digest, err := layer.Digest()
	if err != nil {
		t.Fatal(err)
	}
	content, err := layer.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = content.Close() }()
	if got, _, err := v1.SHA256(content); err != nil || got != digest {
		t.Errorf("the layer %s holds %s, %v", digest, got, err)
	}
}

func TestTheSameImageGivesTheSameArchive(t *testing.T) {
	var contents [2][]byte
	for i := range contents {
		archive := filepath.Join(t.TempDir(), "sample.tar")
		if err := sample().Write(archive); err != nil {
			t.Fatal(err)
		}
		var err error
		if contents[i], err = os.ReadFile(archive); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(contents[0], contents[1]) {
		t.Error("two archives of one image differ")
	}
}

func TestAnArchiveThatCannotBeMadeSaysSo(t *testing.T) {
	err := sample().Write(filepath.Join(t.TempDir(), "none", "sample.tar"))
	if err == nil || !strings.HasPrefix(err.Error(), "making the archive of drydock.dev/sample: ") {
		t.Errorf("got the error %v", err)
	}
}
