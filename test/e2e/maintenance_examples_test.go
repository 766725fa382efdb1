//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	exampleVM    = "vm-datavolume"
	exampleClaim = "vm-datavolume-root"
)

// libguestfsTime bounds one use of libguestfs, which starts an emulated machine of its own.
const libguestfsTime = 3 * patience

// TestTheExamplesOfMaintenance runs them on one halted VM that never started, so the first pod decides where its disk
// is placed: on a node where the VM fits. The tiny guest has neither accounts nor packages, so that pod puts another
// system on the disk: one partition on half of it, busybox, and the files by which the real libguestfs detects a
// Debian.
func TestTheExamplesOfMaintenance(t *testing.T) {
	t.Parallel()
	onlyInTestAll(t)
	ns := newNamespace(t)
	applyExample(t, ns, "vm-datavolume.yaml", "runStrategy: Always", "runStrategy: Halted",
		"      terminationGracePeriodSeconds: 30\n", "      nodeSelector: {kubernetes.io/hostname: "+node2+"}\n")
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: exampleClaim}}
	await(t, dv, &cdiv1.DataVolumeList{}, "the claim", func(dv *cdiv1.DataVolume) bool { return dv.Status.Phase == cdiv1.WaitForFirstConsumer })
	out, waited := guestfs(t, ns, "--command", debian)
	if !strings.Contains(waited, "finding a node on which the VM fits and these claims can be bound: "+exampleClaim) {
		t.Errorf("of the disk that was never filled it is said:\n%s", waited)
	}
	if on := homeOf(t, ns, exampleClaim); !slices.Equal(on, []string{node2}) {
		t.Errorf("the disk of a VM for %s is on %v", node2, on)
	}
	before := blocks(t, out)

	for _, args := range [][]string{
		{"create", "secret", "generic", "new-password", "--from-literal=root=correct horse"},
		{"create", "configmap", "packages", "--from-file=hello.deb=" + packageFile(t)},
		{"patch", "pvc", exampleClaim, "--type=merge", `-p={"spec":{"resources":{"requests":{"storage":"128Mi"}}}}`},
		{"apply", "-f", filepath.Join("..", "..", "examples", "maintenance")},
		{"create", "job", "sparsify-now", "--from=cronjob/sparsify"},
	} {
		if out, err := kubectl(t.Context(), append([]string{"-n", ns}, args...)...); err != nil {
			t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	// The examples have the disk one after the other.
	for _, name := range []string{"reset-password", "install-package", "grow-filesystem", "sparsify-now"} {
		awaitJob(t, ns, name)
	}
	out, _ = guestfs(t, ns, "--read-only", "--command", result)
	for _, want := range []string{"root:$", "hello from a package", "Package: hello", "Status: install ok installed"} {
		if !strings.Contains(out, want) {
			t.Errorf("the disk has no %q:\n%s", want, out)
		}
	}
	if size := number(t, out, "blocks:"); size < 100<<20/4096 {
		t.Errorf("the file system has %d blocks of 4 KiB after it was to grow to 128 MiB", size)
	}
	if after := blocks(t, out); after > before-6<<10 {
		t.Errorf("the disk takes %d KiB, and took %d KiB before 8 MiB were deleted and it was made sparse", after, before)
	}
	awaitPrintable(t, ns, exampleVM, v1.VirtualMachineStatusStopped)
}

// debian makes the system, on the first half of the disk, and leaves 8 MiB of a file that is deleted.
const debian = `set -e
cd /tmp
printf 'ID=debian\nNAME=Debian\nVERSION_ID=13\n' > os-release
echo 13.0 > debian_version
echo '/dev/sda1 / ext4 defaults 0 1' > fstab
echo 'root:x:0:0:root:/root:/bin/sh' > passwd
echo 'root:*:19000:0:99999:7:::' > shadow
dd if=/dev/urandom of=junk bs=1M count=8 2>/dev/null
guestfish --format=raw -a /disks/root/disk.img <<.
run
part-init /dev/sda gpt
part-add /dev/sda p 2048 65535
mkfs ext4 /dev/sda1 blocksize:4096
mount /dev/sda1 /
mkdir-p /var/lib/dpkg/info
mkdir /var/tmp
touch /var/lib/dpkg/status
mkdir /bin
mkdir /etc
mkdir /dev
mkdir /proc
mkdir /sys
mkdir /root
mkdir /tmp
copy-in /bin/busybox /bin
ln-s busybox /bin/sh
ln-s busybox /bin/dpkg
ln-s busybox /bin/rm
copy-in os-release debian_version fstab passwd shadow /etc
copy-in junk /tmp
sync
rm /tmp/junk
.
` + takes

const result = `set -e
guestfish --ro --format=raw -a /disks/root/disk.img run : mount-ro /dev/sda1 / : cat /etc/shadow : cat /usr/bin/hello : \
  cat /var/lib/dpkg/status : statvfs /
` + takes

const takes = `echo "KiB: $(du -k /disks/root/disk.img | cut -f1)"`

func blocks(t *testing.T, out string) int {
	t.Helper()
	return number(t, out, "KiB:")
}

func number(t *testing.T, out, of string) int {
	t.Helper()
	for line := range strings.Lines(out) {
		if text, is := strings.CutPrefix(line, of); is {
			if n, err := strconv.Atoi(strings.TrimSpace(text)); err == nil {
				return n
			}
		}
	}
	t.Fatalf("nothing is said of %q:\n%s", of, out)
	return 0
}

func applyExample(t *testing.T, ns, name string, replace ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", name))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(strings.NewReplacer(replace...).Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := kubectl(t.Context(), "-n", ns, "apply", "-f", file); err != nil {
		t.Fatalf("applying the example %s: %v\n%s", name, err, out)
	}
}

func homeOf(t *testing.T, ns, claim string) []string {
	t.Helper()
	c, volume := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
	err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: claim}, c)
	if err == nil {
		err = cluster.client.Get(t.Context(), client.ObjectKey{Name: c.Spec.VolumeName}, volume)
	}
	if err != nil || volume.Spec.NodeAffinity == nil {
		t.Fatalf("reading the volume of the claim %s: %v, affinity %v", claim, err, volume.Spec.NodeAffinity)
	}
	return volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values
}

// libguestfs's machine is emulated, and other tests run beside it.
func awaitJob(t *testing.T, ns, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), libguestfsTime)
	defer cancel()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	last, err := watchUntil(ctx, job, &batchv1.JobList{}, func(j *batchv1.Job) bool { return j.Status.Succeeded+j.Status.Failed > 0 })
	if err != nil || last.Status.Succeeded == 0 {
		logs, _ := kubectl(t.Context(), "-n", ns, "logs", "job/"+name, "--tail=50")
		t.Fatalf("the Job %s: %v, %+v\n%s", name, err, last.Status, logs)
	}
}

// waited has virtctl's messages about its wait for the disk.
func guestfs(t *testing.T, ns string, args ...string) (printed, waited string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), libguestfsTime)
	defer cancel()
	var beside strings.Builder
	command := exec.CommandContext(ctx, binary("virtctl"), append([]string{"-n", ns, "guestfs", "--vm", exampleVM}, args...)...)
	command.Stderr = &beside
	out, err := command.Output()
	if err != nil {
		t.Fatalf("virtctl guestfs: %v\n%s%s", err, out, beside.String())
	}
	return strings.TrimSpace(string(out)), beside.String()
}

func packageFile(t *testing.T) string {
	t.Helper()
	var deb bytes.Buffer
	deb.WriteString("!<arch>\n")
	member := func(name string, content []byte) {
		fmt.Fprintf(&deb, "%-16s%-12d%-6d%-6d%-8s%-10d`\n%s", name, 0, 0, 0, "100644", len(content), content)
		if len(content)%2 == 1 {
			deb.WriteByte('\n')
		}
	}
	member("debian-binary", []byte("2.0\n"))
	member("control.tar.gz", archive(t, "./control",
		"Package: hello\nVersion: 1.0\nArchitecture: all\nMaintainer: nobody <nobody@example.com>\nDescription: a test\n"))
	member("data.tar.gz", archive(t, "./usr/bin/hello", "hello from a package\n"))
	file := filepath.Join(t.TempDir(), "hello.deb")
	if err := os.WriteFile(file, deb.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func archive(t *testing.T, name, content string) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	files := tar.NewWriter(compressed)
	for at, r := range name {
		if r == '/' {
			must(t, files.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name[:at+1], Mode: 0o755}))
		}
	}
	must(t, files.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(content))}))
	_, err := files.Write([]byte(content))
	must(t, err)
	must(t, files.Close())
	must(t, compressed.Close())
	return out.Bytes()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
