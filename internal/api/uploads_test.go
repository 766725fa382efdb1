//go:build apiserver

package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"
	uploadv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/upload/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/certs"
	"drydock.dev/drydock/internal/certs/workertls"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/internal/importer/upload"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// workerIP is an address of this machine on which only the test's worker listens.
const workerIP = "127.0.0.37"

// uploads sends an image as virtctl does: a token from the API server, then the proxy, and behind it a real worker with
// a certificate as virt-controller makes it.
func (w *world) uploads(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "disk", Namespace: w.namespace, Annotations: map[string]string{layout.AnnUploadTarget: ""},
	}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}
	claim.Spec.StorageClassName = new("none")
	must(t, w.admin.Create(t.Context(), claim))

	uploader := w.bound(t, "uploader", "kubevirt.io:edit")
	var token string
	w.eventually(t, "an editor gets a token", func() (err error) {
		token, err = w.uploadToken(t, uploader, "disk")
		return err
	})
	if _, err := w.uploadToken(t, w.bound(t, "looker", "kubevirt.io:view"), "disk"); !apierrors.IsForbidden(err) {
		t.Errorf("a viewer gets a token: %v", err)
	}
	if _, err := w.uploadToken(t, uploader, "none"); !apierrors.IsNotFound(err) {
		t.Errorf("a token for no claim: %v", err)
	}
	w.listed(t)

	places, ended := w.uploadWorker(t, "disk")
	image := bytes.Repeat([]byte("sector--"), 64)
	if code, text := w.sendImage(t, "wrong."+token, image); code != http.StatusUnauthorized {
		t.Errorf("a wrong token: %d %s", code, text)
	}
	if code, text := w.sendImage(t, token, image); code != http.StatusOK {
		t.Fatalf("the upload: %d %s", code, text)
	}
	must(t, <-ended)
	disk, err := os.ReadFile(filepath.Join(places.Dir, "disk.img"))
	must(t, err)
	if !bytes.HasPrefix(disk, image) || len(disk) != 1<<20 {
		t.Error("the disk is not what was sent")
	}
}

// bound returns a user with a role in the test's namespace.
func (w *world) bound(t *testing.T, user, role string) *rest.Config {
	t.Helper()
	must(t, w.admin.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user, Namespace: w.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}))
	config := rest.CopyConfig(w.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	return config
}

func (w *world) uploadToken(t *testing.T, as *rest.Config, claim string) (string, error) {
	t.Helper()
	path := "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/" + w.namespace + "/uploadtokenrequests"
	text, err := callAs(t.Context(), as, http.MethodPost, path, fmt.Sprintf(
		`{"apiVersion":"upload.cdi.kubevirt.io/v1beta1","kind":"UploadTokenRequest","metadata":{"name":"t"},"spec":{"pvcName":%q}}`, claim))
	if err != nil {
		return "", err
	}
	made := &uploadv1.UploadTokenRequest{}
	must(t, json.Unmarshal([]byte(text), made))
	if made.Status.Token == "" {
		return "", errors.New("the answer has no token")
	}
	return made.Status.Token, nil
}

// listed expects the kind in discovery.
func (w *world) listed(t *testing.T) {
	t.Helper()
	text, err := w.call(http.MethodGet, "/apis/"+uploadv1.SchemeGroupVersion.String(), "")
	if err != nil || !strings.Contains(text, `"uploadtokenrequests"`) {
		t.Errorf("discovery: %s %v", text, err)
	}
}

// uploadWorker runs the worker of a claim and makes its pod.
func (w *world) uploadWorker(t *testing.T, claim string) (job.Places, <-chan error) {
	t.Helper()
	secret := &corev1.Secret{}
	must(t, w.admin.Get(t.Context(), client.ObjectKey{Namespace: clusterconfig.Namespace, Name: certs.UploadSecret}, secret))
	authority, err := workertls.NewAuthority(secret.Data)
	must(t, err)
	data, err := authority.Server(workertls.ServerName(claim, w.namespace), time.Now())
	must(t, err)
	j := &job.Job{
		Task:   transfer.Task{Kind: transfer.KindUpload, Size: 1 << 20},
		Places: job.Under(t.TempDir()), Meter: job.NewMeter(),
	}
	for _, dir := range []string{j.Places.Dir, j.Places.Work, j.Places.TLS} {
		must(t, os.MkdirAll(dir, 0o755))
	}
	for name, text := range data {
		must(t, os.WriteFile(filepath.Join(j.Places.TLS, name), text, 0o600))
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(workerIP, strconv.Itoa(transfer.UploadPort)))
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended, over := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(over)
		_, err := upload.Serve(ctx, j, listener)
		ended <- err
	}()
	t.Cleanup(func() { cancel(); <-over })
	w.workerPod(t, claim)
	return j.Places, ended
}

func (w *world) workerPod(t *testing.T, claim string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: transfer.UploadName(claim), Namespace: w.namespace, Labels: map[string]string{v1.AppLabel: datavolume.WorkerAppLabel},
		},
		Spec: corev1.PodSpec{NodeName: "api-test-node", AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	}
	w.eventually(t, "a pod can be made", func() error { return w.admin.Create(t.Context(), pod) })
	t.Cleanup(func() {
		if err := w.admin.Delete(context.Background(), pod, client.GracePeriodSeconds(0)); err != nil {
			t.Errorf("removing the pod: %v", err)
		}
	})
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, workerIP, []corev1.PodIP{{IP: workerIP}}
	must(t, w.admin.Status().Update(t.Context(), pod))
}

func (w *world) sendImage(t *testing.T, token string, image []byte) (int, string) {
	t.Helper()
	trust := &corev1.ConfigMap{}
	must(t, w.admin.Get(t.Context(), client.ObjectKey{Namespace: clusterconfig.Namespace, Name: certs.TrustConfigMap}, trust))
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(trust.Data[certs.APISecret+".crt"])) {
		t.Fatal("virt-api's authority is not published")
	}
	proxy := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: certs.UploadProxyService + "." + clusterconfig.Namespace + ".svc",
	}}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+w.uploadAddress+"/v1beta1/upload", bytes.NewReader(image))
	must(t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := proxy.Do(request)
	must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, strings.TrimSpace(string(text))
}
