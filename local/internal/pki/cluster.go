package pki

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/render"
)

// Users of the API server, named as Kubernetes' RBAC defaults and node authorizer expect.
const (
	controllerManager = "system:kube-controller-manager"
	scheduler         = "system:kube-scheduler"
	proxy             = "system:kube-proxy"
)

// The files of the authorities. Each is trusted by other servers: users of the API server must not
// access etcd, and none may act as the front proxy.
const (
	clusterCA    = "ca"
	etcdCA       = "etcd-ca"
	frontProxyCA = "front-proxy-ca"
)

// authorities maps files to common names.
var authorities = map[string]string{
	clusterCA:    "drydock-ca",
	etcdCA:       "drydock-etcd-ca",
	frontProxyCA: "drydock-front-proxy-ca",
}

// serviceAccounts is the file of the key that signs service account tokens. Its certificate is
// never checked, so it can't expire.
const serviceAccounts = "sa"

// Unusable returns a reason for each authority that must be replaced: it expires soon, or was created with a wrong
// clock. Meanwhile no component that trusts it may run. Missing ones, which none can trust, are not included.
func Unusable(c layout.Cluster, now time.Time) ([]string, error) {
	if err := checkClock(now); err != nil {
		return nil, err
	}
	var reasons []string
	for file, name := range authorities {
		a, err := load(name, c.PKI(file+".crt"), c.PKI(file+".key"))
		if err != nil {
			return nil, err
		}
		if a == nil {
			continue
		}
		if why := a.unusable(now); why != nil {
			reasons = append(reasons, fmt.Sprintf("the authority %s can't be used any longer: %s", name, why))
		}
	}
	slices.Sort(reasons)
	return reasons, nil
}

// earliest is before this program was written. A clock before it is wrong: it would invalidate all
// authorities, and the right time would invalidate their replacements.
var earliest = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

func checkClock(now time.Time) error {
	if now.Before(earliest) {
		return fmt.Errorf("checking the certificates: this machine's clock says %s, which can't be: set it, then run drydock up again", now.UTC().Format(time.RFC3339))
	}
	return nil
}

// Ensure creates missing and unusable certificates, authorities and kubeconfigs.
func Ensure(c layout.Cluster, now time.Time) error {
	if err := checkClock(now); err != nil {
		return err
	}
	for file, name := range authorities {
		a, err := load(name, c.PKI(file+".crt"), c.PKI(file+".key"))
		if err == nil && (a == nil || a.unusable(now) != nil) {
			_, err = newAuthority(name, c.PKI(file+".crt"), c.PKI(file+".key"), now)
		}
		if err != nil {
			return err
		}
	}
	key, err := load("drydock-service-accounts", c.PKI(serviceAccounts+".crt"), c.PKI(serviceAccounts+".key"))
	if err == nil && key == nil {
		_, err = newAuthority("drydock-service-accounts", c.PKI(serviceAccounts+".crt"), c.PKI(serviceAccounts+".key"), now)
	}
	if err != nil {
		return err
	}
	_, err = Renew(c, now)
	return err
}

// Renew replaces certificates that expire soon, but no authorities, and returns their files. Running components
// read them again.
func Renew(c layout.Cluster, now time.Time) ([]string, error) {
	if err := checkClock(now); err != nil {
		return nil, err
	}
	signers := map[string]*Authority{}
	for file, name := range authorities {
		a, err := load(name, c.PKI(file+".crt"), c.PKI(file+".key"))
		if err == nil && a == nil {
			err = fmt.Errorf("reading the authority %s: %s is missing; drydock up makes it", name, c.PKI(file+".crt"))
		}
		if err != nil {
			return nil, err
		}
		signers[file] = a
	}
	var renewed []string
	for file, s := range leaves(c) {
		changed, err := signers[s.by].ensure(s.leaf, c.PKI(file+".crt"), c.PKI(file+".key"), now)
		if err != nil {
			return renewed, err
		}
		if changed {
			renewed = append(renewed, file)
		}
	}
	slices.Sort(renewed)
	return renewed, writeKubeconfigs(c)
}

type signed struct {
	leaf Leaf
	by   string
}

const admin = "admin"

func leaves(c layout.Cluster) map[string]signed {
	host := c.HostIP().String()
	all := map[string]signed{
		"etcd":                  {Leaf{Name: "etcd", Hosts: []string{host}}, etcdCA},
		"apiserver-etcd-client": {Leaf{Name: "kube-apiserver"}, etcdCA},
		"front-proxy-client":    {Leaf{Name: "front-proxy-client"}, frontProxyCA},
		"apiserver": {Leaf{Name: "kube-apiserver", Hosts: []string{
			host, c.KubernetesIP().String(), "localhost", "kubernetes", "kubernetes.default",
			"kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		}}, clusterCA},
		"apiserver-kubelet-client": {Leaf{Name: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}}, clusterCA},
		"controller-manager":       {Leaf{Name: "kube-controller-manager", Hosts: []string{host}}, clusterCA},
		"scheduler":                {Leaf{Name: "kube-scheduler", Hosts: []string{host}}, clusterCA},
		userFile(admin):            {Leaf{Name: "drydock-admin", Groups: []string{"system:masters"}}, clusterCA},
	}
	for _, node := range c.Nodes {
		all["kubelet-"+node] = signed{Leaf{Name: "system:node:" + node, Groups: []string{"system:nodes"}, Hosts: []string{node, c.NodeIP(node).String()}}, clusterCA}
	}
	for user, leaf := range users(c) {
		all[userFile(user)] = signed{leaf, clusterCA}
	}
	return all
}

func userFile(user string) string { return "user-" + user }

func users(c layout.Cluster) map[string]Leaf {
	all := map[string]Leaf{
		"controller-manager": {Name: controllerManager},
		"scheduler":          {Name: scheduler},
		"proxy":              {Name: proxy},
		"storage":            {Name: render.StorageUser},
		"policies":           {Name: render.PoliciesUser},
	}
	for _, node := range c.Nodes {
		all["kubelet-"+node] = Leaf{Name: "system:node:" + node, Groups: []string{"system:nodes"}}
	}
	return all
}

// client-go reloads changed files, to which the components' kubeconfigs refer. The administrator's contains its
// certificates, because it is copied to other machines.
func writeKubeconfigs(c layout.Cluster) error {
	for user, leaf := range users(c) {
		err := writeKubeconfig(c, c.Config(user+".kubeconfig"), leaf.Name,
			clientcmdapi.Cluster{CertificateAuthority: c.PKI(clusterCA + ".crt")},
			clientcmdapi.AuthInfo{ClientCertificate: c.PKI(userFile(user) + ".crt"), ClientKey: c.PKI(userFile(user) + ".key")})
		if err != nil {
			return err
		}
	}
	ca, err := os.ReadFile(c.PKI(clusterCA + ".crt"))
	if err != nil {
		return fmt.Errorf("reading the cluster's authority: %w", err)
	}
	pair, err := readPair(c.PKI(userFile(admin)+".crt"), c.PKI(userFile(admin)+".key"))
	if err != nil {
		return err
	}
	return writeKubeconfig(c, c.Kubeconfig(), "drydock-admin", clientcmdapi.Cluster{CertificateAuthorityData: ca},
		clientcmdapi.AuthInfo{ClientCertificateData: pair.Cert, ClientKeyData: pair.Key})
}

func writeKubeconfig(c layout.Cluster, file, user string, cluster clientcmdapi.Cluster, auth clientcmdapi.AuthInfo) error {
	cluster.Server = c.APIServer()
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters[c.Name] = &cluster
	cfg.AuthInfos[user] = &auth
	cfg.Contexts[c.Name] = &clientcmdapi.Context{Cluster: c.Name, AuthInfo: user}
	cfg.CurrentContext = c.Name
	data, err := clientcmd.Write(*cfg)
	if err != nil {
		return fmt.Errorf("encoding the kubeconfig of %s: %w", user, err)
	}
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the kubeconfig of %s: %w", user, err)
	}
	if bytes.Equal(old, data) {
		return nil
	}
	return layout.WriteFile(file, data, os.FileMode(0o600))
}
