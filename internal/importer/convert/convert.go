package convert

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/confine"
	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/internal/importer/sniff"
	"drydock.dev/drydock/internal/importer/target"
)

// Limits of qemu-img, which needs about 90 MiB of address space and 30 MiB of memory for any valid image; the time is
// enough for some TiB.
var (
	inspecting = confine.Limits{Memory: 512 << 20, CPU: 30 * time.Second}
	converting = confine.Limits{Memory: 512 << 20, CPU: 12 * time.Hour}
)

// inherited is the path of the first inherited file in a child process.
const inherited = "/dev/fd/3"

// Inspect returns the disk's size, and an error for an unsafe image.
func Inspect(ctx context.Context, format sniff.Format, image *os.File) (int64, error) {
	if err := selfContained(format, image); err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, "qemu-img", "info", "--output=json", "--image-opts", source(format))
	cmd.ExtraFiles = []*os.File{image}
	var said strings.Builder
	cmd.Stdout = &said
	if err := run(cmd, inspecting); err != nil {
		return 0, refused(format, err)
	}
	var info struct {
		VirtualSize int64  `json:"virtual-size"`
		Backing     string `json:"backing-filename"`
		Encrypted   bool   `json:"encrypted"`
	}
	if err := json.Unmarshal([]byte(said.String()), &info); err != nil {
		return 0, fmt.Errorf("reading what qemu-img says of the image: %w", err)
	}
	switch {
	case info.Backing != "":
		return 0, refers(format)
	case info.Encrypted:
		return 0, job.Faultf(transfer.ReasonUnsafeImage, "the %s image is encrypted, and no key was given: decrypt it by qemu-img convert", format)
	}
	return info.VirtualSize, nil
}

// Convert writes the disk in an image.
func Convert(ctx context.Context, format sniff.Format, image *os.File, disk *target.Disk) error {
	info, err := os.Stat(disk.Name())
	if err != nil {
		return fmt.Errorf("looking at the disk to be written: %w", err)
	}
	driver := "file"
	if info.Mode()&os.ModeDevice != 0 {
		driver = "host_device"
	}
	cmd := exec.CommandContext(ctx, "qemu-img", "convert", "-n", "--target-is-zero", "-m", "4",
		"--image-opts", "--target-image-opts", source(format),
		"driver=raw,file.driver="+driver+",file.filename="+strings.ReplaceAll(disk.Name(), ",", ",,"))
	cmd.ExtraFiles = []*os.File{image}
	if err := run(cmd, converting); err != nil {
		return refused(format, err)
	}
	return nil
}

func source(format sniff.Format) string {
	return "driver=" + string(format) + ",read-only=on,file.driver=file,file.filename=" + inherited
}

func run(cmd *exec.Cmd, limits confine.Limits) error {
	p := confine.New(cmd, limits)
	if err := p.Start(); err != nil {
		return err
	}
	return p.Wait()
}

func refused(format sniff.Format, err error) error {
	var fault *job.Fault
	var exit *exec.ExitError // qemu-img's message follows the program's name, which occurs twice
	switch {
	case errors.As(err, &fault):
		return err
	case !errors.As(err, &exit) || exit.ExitCode() < 0:
		return fmt.Errorf("converting the %s image: %w", format, err)
	case strings.Contains(err.Error(), "No space left"):
		return job.Faultf(transfer.ReasonNoSpace, "the claim is full: request a larger one (%w)", err)
	}
	words := err.Error()
	words = words[strings.LastIndex(words, "qemu-img: ")+len("qemu-img: "):]
	words = strings.ReplaceAll(words, inherited, "the image")
	return job.Faultf(transfer.ReasonInvalidImage, "the %s image can't be read: %s", format, words)
}

func refers(format sniff.Format) error {
	return job.Faultf(transfer.ReasonUnsafeImage, "the %s image refers to another file: make one image of both by qemu-img convert", format)
}
