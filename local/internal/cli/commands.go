package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"drydock.dev/local/internal/cgroup"
	"drydock.dev/local/internal/host"
	"drydock.dev/local/internal/image"
	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/status"
	"drydock.dev/local/internal/supervisor"
	"drydock.dev/local/internal/upstream"
)

func newStatus(o *options) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show which parts of the cluster run, with process ids",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "" && format != "json" {
				return fmt.Errorf("showing the status: there is no output format %q, only json", format)
			}
			return o.status(cmd.Context(), format == "json")
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "", "json for programs")
	return cmd
}

func (o *options) status(ctx context.Context, asJSON bool) error {
	c, err := o.cluster()
	if err != nil {
		return err
	}
	st, err := look(ctx, c)
	if err != nil {
		return err
	}
	if asJSON {
		encoder := json.NewEncoder(o.out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(st)
	}
	_, err = fmt.Fprint(o.out, st.Text())
	return err
}

func look(ctx context.Context, c layout.Cluster) (status.Cluster, error) {
	facts, err := host.Gather()
	if err != nil {
		return status.Cluster{}, err
	}
	tree, err := cgroup.Open(facts.CgroupV2)
	if err != nil {
		return status.Cluster{}, err
	}
	return status.Read(ctx, c, tree)
}

func newKubectl(o *options) *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl [ARGUMENTS]",
		Short:              "Run kubectl against the cluster",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			kubeconfig := ""
			// kustomize needs no cluster.
			if len(args) == 0 || args[0] != "kustomize" {
				c, err := o.cluster()
				if err != nil {
					return err
				}
				kubeconfig = c.Kubeconfig()
			}
			// kubectl handles signals itself and expects their defaults.
			signal.Reset(unix.SIGINT, unix.SIGTERM)
			if code := upstream.Kubectl(context.WithoutCancel(cmd.Context()), kubeconfig, args); code != 0 {
				return codeError(code)
			}
			return nil
		},
	}
}

func newImage(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "image", Short: "Bring images into the cluster, without a registry", RunE: group}
	cmd.AddCommand(&cobra.Command{
		Use:   "load FILE...",
		Short: "Load image archives (Docker's or OCI layout) into every node, now and whenever one starts",
		Args:  cobra.MinimumNArgs(1),
		RunE:  func(cmd *cobra.Command, args []string) error { return o.loadImages(cmd.Context(), args) },
	}, &cobra.Command{
		Use:   "list",
		Short: "List the images that were loaded",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := o.cluster()
			if err != nil {
				return err
			}
			archives, err := image.NewStore(c.Images()).List()
			if err != nil {
				return err
			}
			for _, a := range archives {
				for _, ref := range a.Refs {
					fmt.Fprintf(o.out, "%s\t%.12s\n", ref, a.Digest)
				}
			}
			return nil
		},
	})
	return cmd
}

func (o *options) loadImages(ctx context.Context, files []string) error {
	began := time.Now()
	c, err := o.cluster()
	if err != nil {
		return err
	}
	store := image.NewStore(c.Images())
	for _, file := range files {
		archive, err := store.Add(file)
		if err != nil {
			return err
		}
		for _, ref := range archive.Refs {
			fmt.Fprintf(o.out, "%s\n", ref)
		}
	}
	if !answers(c) {
		fmt.Fprintf(o.out, "Kept for the next up: cluster %s is down.\n", c.Name)
		return nil
	}
	err = supervisor.NewClient(c).Call(ctx, "/images", func(p supervisor.Progress) { fmt.Fprintln(o.out, p.Text) })
	if err != nil {
		return err
	}
	fmt.Fprintf(o.out, "Loaded into %d nodes after %.1fs.\n", len(c.Nodes), time.Since(began).Seconds())
	return nil
}

func newNode(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Switch single nodes off and on, as tests of node loss do", RunE: group}
	for _, verb := range []struct{ name, short string }{
		{"kill", "Kill a node and all that runs on it, as a power failure would"},
		{"start", "Switch a dead node on and wait until it is ready"},
	} {
		cmd.AddCommand(&cobra.Command{
			Use: verb.name + " NAME", Short: verb.short, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				c, err := o.cluster()
				if err != nil {
					return err
				}
				return supervisor.NewClient(c).Call(cmd.Context(), "/nodes/"+args[0]+"/"+verb.name,
					func(p supervisor.Progress) { fmt.Fprintln(o.out, p.Text) })
			},
		})
	}
	return cmd
}
