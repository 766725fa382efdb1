//go:build e2e

package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
)

// classShared has volumes that every node sees, so that one node can use two claims that are bound at once.
const classShared = "shared"

const uploadProxy = "cdi-uploadproxy"

// TestAnUploadedDiskIsInTheGuest uploads an image into a DataVolume and one into a claim, and a guest must read
// both. The API server's tests cover the refusals; here the worker, the proxy and the disk are real.
func TestAnUploadedDiskIsInTheGuest(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	warnsOfNothing(t, ns)
	image := filepath.Join(t.TempDir(), "image.raw")
	content := append([]byte("uploaded\n"), bytes.Repeat([]byte{'x'}, 8<<20-len("uploaded\n"))...)
	if err := os.WriteFile(image, content, 0o644); err != nil {
		t.Fatal(err)
	}
	upload := func(args ...string) string { return do(t, ns, uploading(t, image, args...)...) }
	out := upload("dv", "uploaded")
	if !strings.Contains(out, "completed successfully") {
		t.Errorf("virtctl image-upload printed:\n%s", out)
	}
	awaitFilled(t, ns, "uploaded")
	saysUploaded(t, ns, "uploaded")
	trustsProxy(t)
	upload("pvc", "bare", "--volume-mode=block")

	onVirtio := v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}
	vmi := newVMI(ns, "reader")
	addDisk(vmi, v1.Disk{Name: "dv", Serial: "DV", DiskDevice: onVirtio}, v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "uploaded"}})
	addDisk(vmi, v1.Disk{Name: "pvc", Serial: "PVC", DiskDevice: onVirtio}, v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "bare"},
	}})
	g := boot(t, vmi)
	g.sees("what was uploaded into the DataVolume", "head -n 1 "+g.device("DV"), "uploaded")
	g.sees("what was uploaded into the claim", "head -n 1 "+g.device("PVC"), "uploaded")
	nothingBesides(t, ns)

	again, err := virtctl(t.Context(), "-n", ns, "image-upload", "dv", "uploaded", "--no-create", "--image-path="+image,
		"--uploadproxy-url=https://"+serviceAddress(t, "kubevirt", uploadProxy), "--insecure")
	if err == nil {
		t.Errorf("a second upload into the same DataVolume is taken:\n%s", again)
	}
	if got := awaitFilled(t, ns, "uploaded").Status.Phase; got != cdiv1.Succeeded {
		t.Errorf("after the second upload the DataVolume is %s", got)
	}
	isKeptOutByAPolicy(t, ns, image)
}

// uploading returns virtctl's arguments to upload an image into a new disk.
func uploading(t *testing.T, image string, args ...string) []string {
	t.Helper()
	return append(append([]string{"image-upload"}, args...), "--image-path="+image, "--force-bind", "--access-mode=ReadWriteMany",
		"--size="+strconv.Itoa(claimSize), "--storage-class="+classShared, "--uploadproxy-url=https://"+serviceAddress(t, "kubevirt", uploadProxy), "--insecure")
}

// isKeptOutByAPolicy uploads while a policy denies all traffic of the namespace's pods. The kubelet reaches the worker,
// virt-api does not, and virtctl must name the policy as a possible reason. Without the policy the upload must succeed.
func isKeptOutByAPolicy(t *testing.T, ns, image string) {
	t.Helper()
	deny := denyAll(t, ns)
	out, err := virtctl(t.Context(), append([]string{"-n", ns}, uploading(t, image, "dv", "denied", "--retry=0")...)...)
	if err == nil || !strings.Contains(out, "a NetworkPolicy of the namespace "+ns+" may keep Drydock from its pods") {
		t.Errorf("an upload that no connection reaches: %v\n%s", err, out)
	}
	deleteObject(t, deny)
	do(t, ns, "image-upload", "dv", "denied", "--no-create", "--image-path="+image,
		"--uploadproxy-url=https://"+serviceAddress(t, "kubevirt", uploadProxy), "--insecure")
	awaitFilled(t, ns, "denied")
}

// Upstream's virtctl reads these annotations from a DataVolume's claim.
func saysUploaded(t *testing.T, ns, name string) {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	await(t, claim, &corev1.PersistentVolumeClaimList{}, "annotations of an upload that is done", func(c *corev1.PersistentVolumeClaim) bool {
		_, takes := c.Annotations[layout.AnnUploadTarget]
		return takes && c.Annotations[layout.AnnPodPhase] == "Succeeded"
	})
}

// trustsProxy connects to the upload proxy, and trusts only the CA in the CDIConfig.
func trustsProxy(t *testing.T) {
	t.Helper()
	config := &cdiv1.CDIConfig{ObjectMeta: metav1.ObjectMeta{Name: "config"}}
	await(t, config, &cdiv1.CDIConfigList{}, "the upload proxy's authority", func(c *cdiv1.CDIConfig) bool {
		return c.Status.UploadProxyCA != nil
	})
	if err := cluster.client.Get(t.Context(), client.ObjectKeyFromObject(config), config); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(*config.Status.UploadProxyCA))
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: uploadProxy + ".kubevirt.svc"}}
	conn, err := dialer.DialContext(t.Context(), "tcp", net.JoinHostPort(serviceAddress(t, "kubevirt", uploadProxy), "443"))
	if err != nil {
		t.Fatalf("connecting to the upload proxy with the authority that the CDIConfig names: %v", err)
	}
	_ = conn.Close()
}
