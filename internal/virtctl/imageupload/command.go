// Package imageupload is virtctl image-upload: it fills a DataVolume or a claim with a disk image on the user's
// machine.
//
// It must not judge the image: the worker that receives it decides whether it is one and whether it fits.
package imageupload

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"drydock.dev/drydock/internal/virtctl/env"
)

type options struct {
	// dataVolume is true for a DataVolume, false for a claim alone.
	dataVolume bool
	name       string

	path, archive string
	url           string
	insecure      bool
	wait, retries uint
	noCreate      bool
	overwrite     bool

	size         string
	storageClass string
	accessMode   string
	volumeMode   string
	blockVolume  bool
	forceBind    bool
	dataSource   bool
	labels       defaults

	// pvcName and pvcSize are of deprecated flags.
	pvcName, pvcSize string
}

// defaults are for machines that use the volume and name nothing.
type defaults struct {
	instancetype, instancetypeKind string
	preference, preferenceKind     string
}

// NewCommand returns the command.
func NewCommand(e *env.Env) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "image-upload dv|pvc NAME",
		Short: "Upload a disk image to a DataVolume or PersistentVolumeClaim",
		Long: "Upload a disk image from this machine to a DataVolume or PersistentVolumeClaim, which is made if it does not exist.\n" +
			"The image may be raw, qcow2, vmdk, vhdx or vdi, and compressed by gzip, xz or zstd.",
		Example: e.Example("# Make the DataVolume 'fedora-dv' and fill it:",
			"image-upload dv fedora-dv --size=10Gi --image-path=/images/fedora40.qcow2",
			"# Fill one that exists:", "image-upload dv fedora-dv --no-create --image-path=/images/fedora40.qcow2",
			"# A PersistentVolumeClaim, through a forwarded port:",
			"image-upload pvc fedora-pvc --size=10Gi --image-path=fedora40.qcow2.xz --uploadproxy-url=https://127.0.0.1:8444 --insecure"),
		Args: func(cmd *cobra.Command, args []string) error {
			if o.pvcName != "" && len(args) == 0 {
				return nil
			}
			return env.ExactArgs("dv or pvc", "NAME")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(args); err != nil {
				return err
			}
			return run(cmd.Context(), e, &o)
		},
	}
	o.addFlags(cmd)
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.path, "image-path", "", "path of the disk image")
	flags.StringVar(&o.archive, "archive-path", "", "path of a tar file to be unpacked into the volume, in place of a disk image")
	flags.StringVar(&o.url, "uploadproxy-url", "", "address of the upload proxy, if it is not the one that the cluster names")
	flags.BoolVar(&o.insecure, "insecure", false, "do not check the certificate of the upload proxy")
	flags.UintVar(&o.wait, "wait-secs", 300, "seconds to wait until the upload can begin")
	flags.UintVar(&o.retries, "retry", 5, "how often an upload that failed is tried again")
	flags.BoolVar(&o.noCreate, "no-create", false, "do not make the DataVolume or PersistentVolumeClaim, it exists")
	flags.BoolVar(&o.overwrite, "overwrite", false, "replace what a PersistentVolumeClaim holds, of a machine that does not run")
	flags.StringVar(&o.size, "size", "", "size of the volume, e.g. 10Gi")
	flags.StringVar(&o.storageClass, "storage-class", "", "storage class of the volume")
	flags.StringVar(&o.accessMode, "access-mode", "", "ReadWriteOnce, ReadWriteMany, ReadOnlyMany or ReadWriteOncePod")
	flags.StringVar(&o.volumeMode, "volume-mode", "", "block or filesystem")
	flags.BoolVar(&o.blockVolume, "block-volume", false, "the same as --volume-mode=block")
	flags.BoolVar(&o.forceBind, "force-bind", false, "bind the volume at once, even if its storage class waits for a machine that uses it")
	flags.BoolVar(&o.dataSource, "datasource", false, "make a DataSource of the volume's name that points to it")
	flags.StringVar(&o.labels.instancetype, "default-instancetype", "", "instance type that machines with this volume have by default")
	flags.StringVar(&o.labels.instancetypeKind, "default-instancetype-kind", "", "kind of that instance type")
	flags.StringVar(&o.labels.preference, "default-preference", "", "preference that machines with this volume have by default")
	flags.StringVar(&o.labels.preferenceKind, "default-preference-kind", "", "kind of that preference")
	flags.StringVar(&o.pvcName, "pvc-name", "", "the same as the arguments pvc NAME")
	flags.StringVar(&o.pvcSize, "pvc-size", "", "the same as --size")
	for flag, instead := range map[string]string{
		"block-volume": "use --volume-mode=block", "pvc-name": "use the arguments pvc NAME", "pvc-size": "use --size",
	} {
		_ = flags.MarkDeprecated(flag, instead) // the flag exists, so this can't fail
	}
}

// modern replaces the deprecated --pvc-name and --pvc-size.
func (o *options) modern(args []string) ([]string, error) {
	if o.pvcSize != "" {
		if o.size != "" && o.size != o.pvcSize {
			return nil, fmt.Errorf("--pvc-size contradicts --size=%s", o.size)
		}
		o.size = o.pvcSize
	}
	switch {
	case o.pvcName == "":
		return args, nil
	case len(args) > 0:
		return nil, fmt.Errorf("--pvc-name contradicts the argument %q: name the volume once", args[0])
	}
	return []string{"pvc", o.pvcName}, nil
}

func (o *options) complete(args []string) error {
	args, err := o.modern(args)
	if err != nil {
		return err
	}
	switch strings.ToLower(args[0]) {
	case "dv", "datavolume":
		o.dataVolume = true
	case "pvc", "persistentvolumeclaim":
	default:
		return fmt.Errorf("the first argument must be dv or pvc, not %q", args[0])
	}
	o.name = args[1]
	if (o.path == "") == (o.archive == "") {
		return fmt.Errorf("either --image-path or --archive-path must name the file to upload")
	}
	if err = o.completeVolume(); err != nil {
		return err
	}
	if o.labels.instancetypeKind != "" && o.labels.instancetype == "" {
		return fmt.Errorf("--default-instancetype must be provided with --default-instancetype-kind")
	}
	if o.labels.preferenceKind != "" && o.labels.preference == "" {
		return fmt.Errorf("--default-preference must be provided with --default-preference-kind")
	}
	return nil
}

func (o *options) completeVolume() error {
	if o.size != "" {
		if size, err := resource.ParseQuantity(o.size); err != nil || size.Sign() <= 0 {
			return fmt.Errorf("--size must be a size like 10Gi, not %q", o.size)
		}
	}
	if o.overwrite && o.dataVolume {
		return fmt.Errorf("--overwrite is for a pvc: a DataVolume is filled once")
	}
	if o.noCreate && o.size != "" {
		return fmt.Errorf("--size has no meaning with --no-create: the volume exists")
	}
	if err := o.completeAccessMode(); err != nil {
		return err
	}
	return o.completeVolumeMode()
}

func (o *options) completeAccessMode() error {
	if o.accessMode == "" {
		return nil
	}
	mode, err := env.OneOf("access-mode", o.accessMode, string(corev1.ReadWriteOnce), string(corev1.ReadWriteMany),
		string(corev1.ReadOnlyMany), string(corev1.ReadWriteOncePod))
	if err == nil && mode == string(corev1.ReadOnlyMany) {
		err = fmt.Errorf("cannot upload to a readonly volume, use either ReadWriteOnce or ReadWriteMany if supported")
	}
	o.accessMode = mode
	return err
}

func (o *options) completeVolumeMode() error {
	if o.blockVolume {
		if o.volumeMode != "" && !strings.EqualFold(o.volumeMode, string(corev1.PersistentVolumeBlock)) {
			return fmt.Errorf("--block-volume contradicts --volume-mode=%s", o.volumeMode)
		}
		o.volumeMode = string(corev1.PersistentVolumeBlock)
	}
	if o.volumeMode == "" {
		return nil
	}
	mode, err := env.OneOf("volume-mode", o.volumeMode, string(corev1.PersistentVolumeBlock), string(corev1.PersistentVolumeFilesystem))
	if err == nil && o.archive != "" && mode == string(corev1.PersistentVolumeBlock) {
		err = fmt.Errorf("an archive can't be unpacked into a block volume")
	}
	o.volumeMode = mode
	return err
}

func (o *options) file() string {
	if o.archive != "" {
		return o.archive
	}
	return o.path
}

func (o *options) kind() string {
	if o.dataVolume {
		return "DataVolume"
	}
	return "PVC"
}

func (o *options) patience() time.Duration { return time.Duration(o.wait) * time.Second }
