// Command release creates the archive from which Drydock runs on a machine without the source and Go. It packs
// the results of the build in bin/ and build/:
//
//	go run ./release -version v0.1.0
//
// The archive is reproducible to the byte. It must build nothing itself.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

type options struct {
	version, out, bin, images, cache string
	install, dashboards, web         string
}

func main() {
	var o options
	flag.StringVar(&o.version, "version", "", "Drydock's version, as the programs report it")
	flag.StringVar(&o.out, "out", "build", "folder for the archive")
	flag.StringVar(&o.bin, "bin", "bin", "folder with the programs")
	flag.StringVar(&o.images, "images", "build/images", "folder with the image archives")
	flag.StringVar(&o.cache, "cache", "build/cache", "folder with the unpacked Debian packages")
	flag.StringVar(&o.install, "install", "build/drydock.yaml", "the manifest that installs Drydock")
	flag.StringVar(&o.dashboards, "dashboards", "build/drydock-dashboards.yaml", "the manifest with Grafana's dashboards")
	flag.StringVar(&o.web, "web", "internal/web/assets/dist", "the bundle of the web console's pages, which is in virtctl if there is one")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

func run(o options) error {
	files, err := gather(o)
	if err != nil {
		return err
	}
	bill, err := describe(o)
	if err != nil {
		return err
	}
	files = append(files, file{name: "sbom.cdx.json", mode: 0o644, data: bill})
	sums, err := checksums(files)
	if err != nil {
		return err
	}
	files = append(files, file{name: "SHA256SUMS", mode: 0o644, data: sums})
	name := "drydock-" + o.version + "-linux-amd64"
	path := filepath.Join(o.out, name+".tar.gz")
	size, err := writeArchive(path, name, files)
	if err != nil {
		return err
	}
	fmt.Printf("%s\t%d MB\n", path, size/1_000_000)
	return nil
}
