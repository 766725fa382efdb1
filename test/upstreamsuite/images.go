package main

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"drydock.dev/drydock/images/archive"
	"drydock.dev/drydock/images/rootfs"
)

// The suite asks for PREFIX/NAME:TAG.
const (
	imageTag = "suite"
	// qemuID owns the disk in a containerDisk.
	qemuID = 107
)

type diskImage struct {
	name string
	// distribution is the one that the guest on its disk greets as.
	distribution string
	disk         string
}

const usualDisk = "/disk/disk.qcow2"

var diskImages = []diskImage{
	{"alpine-container-disk-demo", "alpine", usualDisk},
	{"alpine-with-test-tooling-container-disk", "alpine", usualDisk},
	{"cirros-container-disk-demo", "cirros", usualDisk},
	{"cirros-custom-container-disk-demo", "cirros", "/custom-disk/downloaded"},
	{"fedora-with-test-tooling-container-disk", "fedora", usualDisk},
}

// QEMU must be able to read the file.
func assembleImage(image diskImage, prefix, file string) (archive.Image, error) {
	root := rootfs.New()
	if err := root.Copy(image.disk, file); err != nil {
		return archive.Image{}, err
	}
	root.Own(filepath.Dir(image.disk), qemuID, qemuID)
	root.Own(image.disk, qemuID, qemuID)
	return archive.Image{Name: prefix + "/" + image.name, Tag: imageTag, Config: v1.Config{}, Layers: []*rootfs.FS{root}}, nil
}

func serveRegistry(ctx context.Context, address string) (string, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return "", fmt.Errorf("serving the registry: %w", err)
	}
	server := &http.Server{Handler: registry.New(registry.Logger(silent)), ReadHeaderTimeout: patience}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }() // it ends with the context
	return listener.Addr().String(), nil
}

// provideImages puts all images into the registry and returns archives of them, which nodes load.
func provideImages(ctx context.Context, prefix, folder string, disks map[string]string) ([]string, error) {
	var archives []string
	for _, image := range diskImages {
		made, err := assembleImage(image, prefix, disks[image.distribution])
		if err != nil {
			return nil, err
		}
		ref, err := name.NewTag(made.Name+":"+made.Tag, name.Insecure)
		if err != nil {
			return nil, fmt.Errorf("naming the image %s: %w", made.Name, err)
		}
		content, err := made.Assemble()
		if err != nil {
			return nil, fmt.Errorf("assembling the image %s: %w", made.Name, err)
		}
		if err := remote.Write(ref, content, remote.WithContext(ctx)); err != nil {
			return nil, fmt.Errorf("putting the image %s into the registry: %w", made.Name, err)
		}
		file := filepath.Join(folder, image.name+".tar")
		if err := made.Write(file); err != nil {
			return nil, err
		}
		archives = append(archives, file)
	}
	return archives, nil
}

// toolsName is the image of the suite's helper pods, which need only a shell.
const toolsName = "vm-killer"

func renameImage(from, to, called string) error {
	source, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("renaming an image: %w", err)
	}
	defer func() { _ = source.Close() }()
	target, err := os.Create(to)
	if err != nil {
		return fmt.Errorf("renaming an image: %w", err)
	}
	defer func() { _ = target.Close() }()
	reader, writer := tar.NewReader(source), tar.NewWriter(target)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return errors.Join(writer.Close(), target.Close())
		}
		if err == nil {
			err = copyRenamed(writer, header, reader, called)
		}
		if err != nil {
			return fmt.Errorf("renaming the image in %s: %w", from, err)
		}
	}
}

// copyRenamed copies a file of an archive, and changes the name in the index.
func copyRenamed(to *tar.Writer, header *tar.Header, from io.Reader, called string) error {
	data, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	if header.Name == "index.json" {
		var index v1.IndexManifest
		if err := json.Unmarshal(data, &index); err != nil {
			return err
		}
		for i := range index.Manifests {
			index.Manifests[i].Annotations = map[string]string{"io.containerd.image.name": called}
		}
		if data, err = json.Marshal(index); err != nil {
			return err
		}
		header.Size = int64(len(data))
	}
	if err := to.WriteHeader(header); err != nil {
		return err
	}
	_, err = to.Write(data)
	return err
}
