package image

import (
	"context"
	"errors"
	"fmt"
	"os"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
)

const (
	// The kubelet uses this namespace.
	namespace    = "k8s.io"
	archiveLabel = "drydock.dev/archive"
)

// Sync imports every archive into the containerd at socket.
func (s Store) Sync(ctx context.Context, socket string) error {
	archives, err := s.List()
	if err != nil {
		return err
	}
	client, err := containerd.New(socket, containerd.WithDefaultNamespace(namespace))
	if err != nil {
		return fmt.Errorf("connecting to containerd at %s: %w", socket, err)
	}
	defer func() { _ = client.Close() }() // all calls have returned
	var errs []error
	for _, a := range archives {
		errs = append(errs, s.load(ctx, client, a))
	}
	return errors.Join(errs...)
}

func (s Store) load(ctx context.Context, client *containerd.Client, a Archive) error {
	present, err := hasAll(ctx, client, a)
	if err != nil || present {
		return err
	}
	file, err := os.Open(s.Path(a))
	if err != nil {
		return fmt.Errorf("opening the archive of %v: %w", a.Refs, err)
	}
	defer file.Close()
	images, err := client.Import(ctx, file,
		containerd.WithImageLabels(map[string]string{archiveLabel: a.Digest}),
		containerd.WithImageRefTranslator(FullName))
	if err != nil {
		return fmt.Errorf("importing %v: %w", a.Refs, err)
	}
	for _, img := range images {
		// Unpacking now spares the first pod the wait.
		if err := containerd.NewImage(client, img).Unpack(ctx, ""); err != nil {
			return fmt.Errorf("unpacking %s: %w", img.Name, err)
		}
	}
	return nil
}

func hasAll(ctx context.Context, client *containerd.Client, a Archive) (bool, error) {
	for _, ref := range a.Refs {
		img, err := client.ImageService().Get(ctx, ref)
		if errdefs.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("looking for image %s: %w", ref, err)
		}
		if img.Labels[archiveLabel] != a.Digest {
			return false, nil
		}
	}
	return true, nil
}
