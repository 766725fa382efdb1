package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"drydock.dev/local/internal/deploy"
	"drydock.dev/local/internal/image"
	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/manifest"
)

func newDeploy(o *options) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "deploy FOLDER|FILE...",
		Short: "Apply kustomize folders and manifests, one after the other, and wait until each works",
		Long: `Apply kustomize folders and manifests, one after the other, and wait until each works.

Pods of Deployments and DaemonSets are started anew when an image of theirs was
loaded with other content. The environment variable DRYDOCK_ACCEL, kvm or tcg, is the
only accelerator that guests get; without it each node's probe chooses.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			c, err := o.cluster()
			if err != nil {
				return err
			}
			began := time.Now()
			return o.deploy(ctx, c, args, func(text string) {
				fmt.Fprintf(o.out, "%6.1fs  %s\n", time.Since(began).Seconds(), text)
			})
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "how long to wait for all of it")
	return cmd
}

func (o *options) deploy(ctx context.Context, c layout.Cluster, paths []string, tell func(string)) error {
	archives, err := image.NewStore(c.Images()).List()
	if err != nil {
		return err
	}
	digests := map[string]string{}
	for _, archive := range archives {
		for _, ref := range archive.Refs {
			digests[ref] = archive.Digest[:12]
		}
	}
	digest := func(name string) string { return digests[image.FullName(name)] }
	accelerator, err := deploy.ParseAccelerator(os.Getenv(deploy.AcceleratorVariable))
	if err != nil {
		return err
	}
	cluster, err := deploy.Connect(c.Kubeconfig())
	if err != nil {
		return err
	}
	for _, path := range paths {
		objects, err := manifest.Read(path)
		if err != nil {
			return err
		}
		probes, err := adapt(objects, digest, accelerator)
		if err != nil {
			return err
		}
		if err := cluster.Deploy(ctx, objects); err != nil {
			return fmt.Errorf("deploying %s: %w; to see more: drydock kubectl get pods -A; it can be called again", path, err)
		}
		tell(fmt.Sprintf("%s: %d objects work", path, len(objects)))
		if !probes {
			continue
		}
		found, err := cluster.AwaitAccelerator(ctx, accelerator)
		if err != nil {
			return err
		}
		tell(fmt.Sprintf("accelerators (%s=%s): %s", deploy.AcceleratorVariable, accelerator, found))
	}
	return nil
}

// adapt sets the cluster's image digests and accelerator in the objects. It reports whether they
// include virt-handler, which probes the nodes.
func adapt(objects []*unstructured.Unstructured, digest func(string) string, a deploy.Accelerator) (probes bool, err error) {
	for _, object := range objects {
		if err := manifest.MarkImages(object, digest); err != nil {
			return false, err
		}
		handler, err := a.Fix(object)
		if err != nil {
			return false, err
		}
		probes = probes || handler
	}
	return probes, nil
}
