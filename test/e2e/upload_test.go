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

// TestAnUploadedDiskIsInTheGuest uploads an image into a DataVolume and one into a claim, as users do, and a guest must
// read both. The API server's tests cover the refusals; here the worker, the proxy and the disk are real.
func TestAnUploadedDiskIsInTheGuest(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	image := filepath.Join(t.TempDir(), "image.raw")
	content := append([]byte("uploaded\n"), bytes.Repeat([]byte{'x'}, 8<<20-len("uploaded\n"))...)
	if err := os.WriteFile(image, content, 0o644); err != nil {
		t.Fatal(err)
	}
	upload := func(args ...string) string {
		return do(t, ns, append([]string{"image-upload"}, append(args, "--image-path="+image, "--force-bind", "--access-mode=ReadWriteMany",
			"--size="+strconv.Itoa(claimSize), "--storage-class="+classShared, "--uploadproxy-url=https://"+serviceAddress(t, "kubevirt", uploadProxy), "--insecure")...)...)
	}
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
}

// saysUploaded waits for the annotations that upstream's virtctl reads from the claim of a DataVolume.
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
