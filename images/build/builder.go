package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"drydock.dev/drydock/images/archive"
	"drydock.dev/drydock/images/debian"
	"drydock.dev/drydock/images/qemutree"
	"drydock.dev/drydock/images/rootfs"
)

type builder struct {
	options
}

// part is a layer that is made only if its key, a hash of its inputs, is new.
type part struct {
	key  string
	make func() (*rootfs.FS, error)
}

// writeArchive writes an image's archive, unless one from the same parts exists. It reports whether
// it did.
func (b builder) writeArchive(ctx context.Context, name string, image image) (bool, error) {
	parts, err := image.parts(ctx, b)
	if err != nil {
		return false, fmt.Errorf("gathering the parts of %s: %w", name, err)
	}
	key, err := b.key(image, parts)
	if err != nil {
		return false, err
	}
	if b.upToDate(name, key) {
		return false, nil
	}
	made := archive.Image{Name: "drydock.dev/" + name, Tag: b.tag, Config: image.config}
	for _, part := range parts {
		layer, err := part.make()
		if err != nil {
			return false, fmt.Errorf("making a layer of %s: %w", name, err)
		}
		made.Layers = append(made.Layers, layer)
	}
	if err := made.Write(b.archivePath(name)); err != nil {
		return false, err
	}
	if err := os.WriteFile(b.keyPath(name), []byte(key), 0o644); err != nil {
		return false, fmt.Errorf("noting what %s was made of: %w", name, err)
	}
	return true, nil
}

func (b builder) archivePath(name string) string { return filepath.Join(b.out, name+".tar") }

func (b builder) keyPath(name string) string { return filepath.Join(b.out, "."+name+".key") }

func (b builder) upToDate(name, key string) bool {
	noted, err := os.ReadFile(b.keyPath(name))
	if err != nil || string(noted) != key {
		return false
	}
	_, err = os.Stat(b.archivePath(name))
	return err == nil
}

// key is a hash of everything that determines an archive: the parts, the configuration, and this
// program.
func (b builder) key(image image, parts []part) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding this program: %w", err)
	}
	program, err := fileKey(self)
	if err != nil {
		return "", err
	}
	config, err := json.Marshal(image.config)
	if err != nil {
		return "", fmt.Errorf("writing the image's configuration: %w", err)
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n%s\n%s\n", program, config, b.tag)
	for _, part := range parts {
		fmt.Fprintln(sum, part.key)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// unpackers is the number of package lists that are unpacked concurrently: one uses the network
// while another unpacks.
const unpackers = 3

func (b builder) unpackPackages(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(unpackers)
	seen := map[string]bool{}
	for _, name := range b.images {
		packages, err := images[name].packages()
		if err != nil {
			return errors.Join(err, group.Wait())
		}
		key := strings.Join(packages, " ")
		if seen[key] {
			continue
		}
		seen[key] = true
		group.Go(func() error {
			if _, err := debian.Extract(ctx, b.cache, packages); err != nil {
				return fmt.Errorf("gathering the packages of %s: %w", name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// makeQEMU makes the images' QEMU for this machine, as build/qemu if the cache is build/cache.
func (b builder) makeQEMU(ctx context.Context) error {
	tree, err := qemutree.Make(ctx, b.cache)
	if err != nil {
		return err
	}
	return qemutree.Link(tree, filepath.Join(filepath.Dir(b.cache), "qemu"))
}

// writeRootfs writes an image's files into a folder, as the source of container builds.
func (b builder) writeRootfs(ctx context.Context, name string) error {
	parts, err := images[name].parts(ctx, b)
	if err != nil {
		return fmt.Errorf("gathering the parts of %s: %w", name, err)
	}
	for _, part := range parts {
		layer, err := part.make()
		if err != nil {
			return fmt.Errorf("making a layer of %s: %w", name, err)
		}
		if err := layer.WriteFolder(b.rootfs); err != nil {
			return err
		}
	}
	return nil
}

// fileKey returns the hash of a file.
func fileKey(name string) (string, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", name, err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}
