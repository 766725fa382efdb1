// Command build builds Drydock's container images from the programs in bin/ and from Debian
// packages, without a registry, a container engine or privileges:
//
//	go run ./images/build [flags] [image ...]
//
// Each image becomes an OCI archive, <out>/<image>.tar. An image with unchanged parts is kept. It
// compiles none of Drydock's programs; `make build` does.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/test/guest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "images: %v\n", err)
		os.Exit(1)
	}
}

type options struct {
	out, cache, bin, tag string
	// rootfs is a folder for the files of one image, instead of archives.
	rootfs string
	// unpack stops after the Debian packages, kernel after the test guest's kernel.
	unpack, kernel bool
	// qemu stops after the images' QEMU for this machine.
	qemu   bool
	images []string
}

func parseOptions(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	flags.StringVar(&o.out, "out", "build/images", "folder for the archives")
	flags.StringVar(&o.cache, "cache", "build/cache", "folder for what is kept between runs")
	flags.StringVar(&o.bin, "bin", "bin", "folder with Drydock's programs")
	flags.StringVar(&o.tag, "tag", "devel", "tag of the images")
	flags.StringVar(&o.rootfs, "rootfs", "", "write the files of the one image named into this `folder` instead")
	flags.BoolVar(&o.unpack, "packages", false, "only fetch and unpack the Debian packages, which needs none of Drydock's programs")
	flags.BoolVar(&o.kernel, "kernel", false, "only compile the test guest's kernel, which needs none of Drydock's programs")
	flags.BoolVar(&o.qemu, "qemu", false, "only unpack the images' QEMU for tests on this machine, as qemu beside the cache")
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "usage: build [flags] [image ...]\n\nimages (all, if none is named): %s\n\nflags:\n",
			strings.Join(imageNames(), " "))
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.images = flags.Args()
	if len(o.images) == 0 {
		o.images = imageNames()
	}
	for _, name := range o.images {
		if !slices.Contains(imageNames(), name) {
			return o, fmt.Errorf("there is no image %q; there is %s", name, strings.Join(imageNames(), ", "))
		}
	}
	if o.rootfs != "" && len(o.images) != 1 {
		return o, fmt.Errorf("-rootfs takes one image, not %d", len(o.images))
	}
	return o, nil
}

func run(ctx context.Context, args []string) error {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	b := builder{options: o}
	if o.unpack {
		return b.unpackPackages(ctx)
	}
	if o.kernel {
		return guest.BuildKernel(ctx, b.cache)
	}
	if o.qemu {
		return b.makeQEMU(ctx)
	}
	if o.rootfs != "" {
		return b.writeRootfs(ctx, o.images[0])
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("making the folder for the archives: %w", err)
	}
	if err := b.makeQEMU(ctx); err != nil {
		return err
	}
	for _, name := range o.images {
		began := time.Now()
		made, err := b.writeArchive(ctx, name, images[name])
		if err != nil {
			return err
		}
		if made {
			fmt.Printf("%s\t%.1f s\n", b.archivePath(name), time.Since(began).Seconds())
		}
	}
	return nil
}
