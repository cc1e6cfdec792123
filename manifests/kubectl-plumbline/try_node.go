package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"text/template"
	"time"

	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/plumbline/plumbline/manifests/kubectl-plumbline/try"
	"github.com/plumbline/plumbline/rules/why"
)

//go:embed try_job.yaml
var jobText string

// jobTemplate is the Job that is made. Its values are JSON strings, which are YAML, too.
var jobTemplate = template.Must(template.New("job").Parse(jobText))

const (
	// beginning is how long the programs may take to begin on a node, with their images.
	beginning = 2 * time.Minute
	// pollInterval is how often their pod is requested.
	pollInterval = time.Second
	// removing is how long the request to remove them may take.
	removing = 30 * time.Second
)

// place is what is measured of a cluster: a node, and of it some claims, or all database servers if there are none.
type place struct {
	node   string
	claims []why.Subject
	// volumes are the claims'.
	volumes []*persistentVolume
	// replicas are the other nodes that have replicas of these volumes.
	replicas []string
}

// tryJob is a Job that measures a node.
type tryJob struct {
	node string
	// names are that of its Job, and before it that of one for whose pod there was no room.
	names []string
}

// name is that of the Job whose pod measures.
func (j *tryJob) name() string { return j.names[len(j.names)-1] }

// requests are what a container requests of a node.
type requests struct {
	CPU    string `json:"cpu"`
	Memory string `json:"memory"`
}

// The chart's requests, without which the programs would not run beside what uses every CPU; and none, for a node that has
// no room for them.
var (
	agentRequests, blockioRequests = requests{"50m", "64Mi"}, requests{"20m", "32Mi"}
	noRequests                     = requests{"0", "0"}
)

// pod is what is read of a pod.
type pod struct {
	Metadata struct{ Name string }
	Spec     struct {
		NodeName string
		Volumes  []struct{ PersistentVolumeClaim *struct{ ClaimName string } }
	}
	Status struct {
		Phase, Reason, Message string
		ContainerStatuses      []struct {
			Name  string
			State struct {
				Waiting    *struct{ Reason, Message string }
				Running    *struct{}
				Terminated *struct {
					ExitCode        int
					Reason, Message string
				}
			}
		}
	}
}

func (p *pod) mounts(claim string) bool {
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim {
			return true
		}
	}
	return false
}

// place returns what a target names: CLAIM, pod/POD or node/NODE.
func (c *cluster) place(ctx context.Context, target string) (p place, err error) {
	if node, ok := strings.CutPrefix(target, "node/"); ok {
		if problems := validation.IsDNS1123Subdomain(node); len(problems) > 0 {
			return p, usageError{fmt.Errorf("%q is no name of a node: %s", why.Clean(node), problems[0])}
		}
		p.node = node
		return p, c.get(ctx, "/api/v1/nodes/"+node, nil, &struct{}{})
	}
	kind, s, err := subject(target, cmp.Or(c.o.namespace, "default"))
	if err != nil {
		return p, err
	}
	pods := "/api/v1/namespaces/" + s.Namespace + "/pods"
	var user *pod
	claims := []string{s.Claim}
	switch kind {
	case "claim":
		var list struct{ Items []pod }
		if err := c.get(ctx, pods, nil, &list); err != nil {
			return p, err
		}
		for i := range list.Items {
			if one := &list.Items[i]; one.mounts(s.Claim) && one.Status.Phase == "Running" {
				if user != nil && user.Spec.NodeName != one.Spec.NodeName {
					c.note("Pods on several nodes use the claim; measured is that of pod %s.", user.Metadata.Name)
					break
				}
				user = one
			}
		}
		if user == nil {
			return p, fmt.Errorf("no running pod uses claim %s/%s, so there is nothing to measure", s.Namespace, s.Claim)
		}
	case "pod":
		user = &pod{}
		if err := c.get(ctx, pods+"/"+s.Pod, nil, user); err != nil {
			return p, err
		}
		if user.Status.Phase != "Running" {
			return p, fmt.Errorf("pod %s/%s does not run: it is %s", s.Namespace, s.Pod, why.Clean(user.Status.Phase))
		}
		if claims, err = c.claimsOf(ctx, s.Namespace, s.Pod); err != nil {
			return p, err
		}
		if len(claims) == 0 {
			return p, fmt.Errorf("pod %s/%s mounts no claim; node/%s measures all servers of its node", s.Namespace, s.Pod, user.Spec.NodeName)
		}
	default:
		return p, usageError{fmt.Errorf("%q: try measures a claim, a pod's claims or a node: want CLAIM, pod/POD or node/NODE", target)}
	}
	p.node = user.Spec.NodeName
	for _, claim := range claims {
		volume, err := c.volume(ctx, s.Namespace, claim)
		if err != nil {
			return p, err
		}
		if c.o.try.breakDown {
			nodes, err := c.replicaNodes(ctx, volume)
			if err != nil {
				return p, err
			}
			p.replicas = append(p.replicas, nodes...)
		}
		p.claims, p.volumes = append(p.claims, why.Subject{Namespace: s.Namespace, Claim: claim}), append(p.volumes, volume)
	}
	slices.Sort(p.replicas)
	p.replicas = slices.DeleteFunc(slices.Compact(p.replicas), func(node string) bool { return node == p.node })
	return p, nil
}

// longhornDriver is the CSI driver of Longhorn.
const longhornDriver = "driver.longhorn.io"

// replicaNodes returns the nodes that have replicas of a volume.
func (c *cluster) replicaNodes(ctx context.Context, volume *persistentVolume) (nodes []string, err error) {
	csi := volume.csi()
	if csi["driver"] != longhornDriver {
		c.note("Which nodes have replicas of volume %s is not known: --break-down knows those of the CSI driver %s alone.", volume.Metadata.Name, longhornDriver)
		return nil, nil
	}
	var list struct {
		Items []struct{ Spec struct{ NodeID string } }
	}
	err = c.get(ctx, "/apis/longhorn.io/v1beta2/replicas", url.Values{"labelSelector": {fmt.Sprint("longhornvolume=", csi["volumeHandle"])}}, &list)
	if err != nil {
		return nil, fmt.Errorf("--break-down needs to list replicas.longhorn.io: %w", err)
	}
	for _, r := range list.Items {
		if r.Spec.NodeID != "" { // it has a place
			nodes = append(nodes, r.Spec.NodeID)
		}
	}
	return nodes, nil
}

// persistentVolume is what the agent needs of one, as the API server has it.
type persistentVolume struct {
	Metadata struct {
		Name        string            `json:"name"`
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	} `json:"metadata"`
	Spec   map[string]any `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

// volume returns a claim's volume.
func (c *cluster) volume(ctx context.Context, namespace, claim string) (*persistentVolume, error) {
	var bound struct{ Spec struct{ VolumeName string } }
	if err := c.get(ctx, "/api/v1/namespaces/"+namespace+"/persistentvolumeclaims/"+claim, nil, &bound); err != nil {
		return nil, err
	}
	if bound.Spec.VolumeName == "" {
		return nil, fmt.Errorf("claim %s/%s has no volume yet", namespace, claim)
	}
	v := &persistentVolume{}
	if err := c.get(ctx, "/api/v1/persistentvolumes/"+bound.Spec.VolumeName, nil, v); err != nil {
		return nil, err
	}
	v.prune()
	return v, nil
}

// prune leaves what identifies the volume: options and attributes of drivers may be secret.
func (v *persistentVolume) prune() {
	maps.DeleteFunc(v.Metadata.Annotations, func(name, _ string) bool { return !strings.HasPrefix(name, "pv.kubernetes.io/") })
	maps.DeleteFunc(v.Spec, func(name string, value any) bool {
		if source, ok := value.(map[string]any); ok && name != "claimRef" && name != "nodeAffinity" {
			maps.DeleteFunc(source, func(name string, _ any) bool {
				return !slices.Contains([]string{"driver", "volumeHandle", "path"}, name)
			})
			return false
		}
		return !slices.Contains([]string{"claimRef", "nodeAffinity", "storageClassName"}, name)
	})
}

// csi is the source of a CSI driver's volume, and nil for others.
func (v *persistentVolume) csi() map[string]any {
	csi, _ := v.Spec["csi"].(map[string]any)
	return csi
}

// measureNode has the programs run on the place's node and on those of replicas, measures there, and removes them. What
// cannot run on a replica's node is noted, and that node left out.
func (c *cluster) measureNode(ctx context.Context, p place, o tryOptions) (*try.Measurement, error) {
	m, err := try.New(c.leftOut())
	if err != nil {
		return nil, err
	}
	began := c.now()
	var jobs []*tryJob
	remove := func() (removed []string, err error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removing)
		defer cancel()
		for _, j := range jobs {
			for _, name := range j.names {
				err = errors.Join(err, c.removeJob(ctx, o.in, name))
				removed = append(removed, name)
			}
		}
		return removed, err
	}
	for _, node := range append([]string{p.node}, p.replicas...) {
		j := &tryJob{node: node}
		err := c.startJob(ctx, o, p, j)
		if err == nil {
			jobs = append(jobs, j)
			c.note("Made Job %s in namespace %s; its pod measures on node %s.", j.name(), o.in, node)
		} else if node == p.node {
			return nil, err
		} else {
			c.leaveOut(node, err)
		}
	}
	err = c.measureBy(ctx, m, p, o, jobs, began)
	switch removed, left := remove(); {
	case err != nil:
		return nil, errors.Join(err, left)
	case left != nil:
		c.note("%s", why.Line(left)) // what was measured is worth no less
	default:
		for _, name := range removed {
			c.note("Removed Job %s.", name)
		}
	}
	return m, nil
}

// leaveOut notes that a replica's node is not measured.
func (c *cluster) leaveOut(node string, err error) {
	c.note("Node %s, which has a replica, is not measured: %s", why.Clean(node), why.Line(err))
}

// startJob makes a Job, and none if that fails.
func (c *cluster) startJob(ctx context.Context, o tryOptions, p place, j *tryJob) error {
	if j.node != p.node {
		p.volumes = nil // they are not mounted there
	}
	name := "plumbline-try-" + utilrand.String(8)
	job, template, err := o.job(name, j.node, p.volumes)
	if err != nil {
		return err
	}
	err = c.makeJob(ctx, o.in, job, template)
	// Unless the request was answered, the API server may have made it all the same.
	if status := (*statusError)(nil); err != nil && (!errors.As(err, &status) || status.code/100 != 4) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removing)
		defer cancel()
		err = errors.Join(err, c.removeJob(ctx, o.in, name))
	}
	if err == nil {
		j.names = append(j.names, name)
	}
	return err
}

// removeJob removes a Job with its pod, if it is there.
func (c *cluster) removeJob(ctx context.Context, namespace, name string) error {
	path := "/apis/batch/v1/namespaces/" + namespace + "/jobs/" + name
	err := c.send(ctx, http.MethodDelete, path, url.Values{"propagationPolicy": {"Background"}}, nil, &struct{}{})
	if err != nil && !answered(err, http.StatusNotFound) {
		return fmt.Errorf("removing what was made: %w; it ends by itself, or: kubectl delete job %s --namespace %s", err, name, namespace)
	}
	return nil
}

// measureBy measures by the pods of Jobs, the first of which is the place's node's.
func (c *cluster) measureBy(ctx context.Context, m *try.Measurement, p place, o tryOptions, jobs []*tryJob, began time.Time) error {
	// A redirect would be followed with the user's token, whatever host it leads to.
	client := *c.client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	exporters, errs := make([][]try.Exporter, len(jobs)), make([]error, len(jobs))
	var awaited sync.WaitGroup
	begin, stop := context.WithCancel(ctx)
	defer stop()
	for i, j := range jobs {
		// Together: a pod that its node does not keep is gone after half a minute.
		awaited.Go(func() {
			exporters[i], errs[i] = c.awaitJob(begin, o.in, j, &client)
			if lost := (*podError)(nil); errors.As(errs[i], &lost) && lost.noRoom {
				exporters[i], errs[i] = c.requestNothing(begin, o, p, j, &client, lost)
			}
			if errs[i] != nil && j.node == p.node {
				stop()
			}
		})
	}
	awaited.Wait()
	var all []try.Exporter
	for i, j := range jobs {
		switch {
		case errs[i] == nil:
			all = append(all, exporters[i]...)
		case j.node == p.node:
			return errs[i]
		default:
			c.leaveOut(j.node, errs[i])
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go c.watchPod(ctx, o.in, jobs[0].name(), cancel)
	err := c.measureAll(ctx, m, all, p.claims, began)
	if ended := (*podError)(nil); errors.As(context.Cause(ctx), &ended) {
		return ended // and not what followed from it
	}
	return err
}

// requestNothing makes another Job beside one for whose pod its node has no room: its pod runs with what is left there.
func (c *cluster) requestNothing(ctx context.Context, o tryOptions, p place, j *tryJob, client *http.Client, lost *podError) ([]try.Exporter, error) {
	c.note("Node %s: %s. Another pod requests no CPU and memory: busy programs may leave it too little.", why.Clean(j.node), why.Line(lost))
	o.requestNothing = true
	if err := c.startJob(ctx, o, p, j); err != nil {
		return nil, err
	}
	c.note("Made Job %s in namespace %s.", j.name(), o.in)
	return c.awaitJob(ctx, o.in, j, client)
}

// awaitJob returns the exporters of a Job's pod once they answer.
func (c *cluster) awaitJob(ctx context.Context, namespace string, j *tryJob, client *http.Client) (all []try.Exporter, err error) {
	ctx, stop := context.WithTimeout(ctx, beginning)
	defer stop()
	pod, err := c.awaitPod(ctx, namespace, j.name())
	if err != nil {
		return nil, err
	}
	at := func(port string) string {
		return c.base.JoinPath("api/v1/namespaces", namespace, "pods", pod+":"+port, "proxy", "metrics").String()
	}
	agent, blockio := try.Targets(j.node)
	all = []try.Exporter{{URL: at("9437"), Client: client, Target: agent}, {URL: at("9435"), Client: client, Target: blockio}}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go c.watchPod(ctx, namespace, j.name(), cancel)
	if err = try.Await(ctx, all); errors.Is(err, try.ErrRefused) {
		err = lackRights(namespace, err)
	}
	if ended := (*podError)(nil); err != nil && errors.As(context.Cause(ctx), &ended) {
		return nil, ended
	}
	return all, err
}

// noPod is the state of a Job without a pod.
const noPod = "the Job has no pod: a limit, a quota or a policy of its namespace, or PodSecurity, may refuse it"

// podError is why a pod does not measure.
type podError struct {
	text string
	// noRoom is true if its node has too little CPU or memory left to request.
	noRoom bool
}

func (e *podError) Error() string { return e.text }

// job renders the Job, and a Pod of its template.
func (o tryOptions) job(name, node string, used []*persistentVolume) (job, made []byte, err error) {
	volumes, err := json.Marshal(map[string]any{"persistentvolumes": used})
	if err != nil {
		return nil, nil, err
	}
	image := func(of string) string {
		return fmt.Sprintf("%s/%s:%s", strings.TrimSuffix(o.registry, "/"), of, cmp.Or(o.tag, release))
	}
	secrets := []map[string]string{}
	for _, name := range o.pullSecrets {
		secrets = append(secrets, map[string]string{"name": name})
	}
	values := map[string]any{"Deadline": int((o.span + queryTimeout).Seconds())}
	ofAgent, ofBlockio := agentRequests, blockioRequests
	if o.requestNothing {
		ofAgent, ofBlockio = noRequests, noRequests
	}
	for key, text := range map[string]any{"AgentRequests": ofAgent, "BlockioRequests": ofBlockio, "Name": name, "Node": node, "Volumes": string(volumes), "Agent": image("agent"), "Blockio": image("blockio"), "PullSecrets": secrets} {
		quoted, err := json.Marshal(text)
		if err != nil {
			return nil, nil, err
		}
		values[key] = string(quoted)
	}
	var text bytes.Buffer
	if err := jobTemplate.Execute(&text, values); err != nil {
		return nil, nil, err
	}
	if job, err = yaml.YAMLToJSON(text.Bytes()); err != nil {
		return nil, nil, err
	}
	var object struct {
		Spec struct{ Template map[string]any }
	}
	if err := json.Unmarshal(job, &object); err != nil {
		return nil, nil, err
	}
	one := object.Spec.Template
	one["apiVersion"], one["kind"] = "v1", "Pod"
	one["metadata"].(map[string]any)["generateName"] = "plumbline-try-"
	made, err = json.Marshal(one)
	return job, made, err
}

// makeJob makes the Job. The API server admits Jobs whose pods it refuses, so the pod is requested first, without
// making it.
func (c *cluster) makeJob(ctx context.Context, namespace string, job, template []byte) error {
	err := c.send(ctx, http.MethodPost, "/api/v1/namespaces/"+namespace+"/pods", url.Values{"dryRun": {"All"}}, template, &struct{}{})
	if err != nil && strings.Contains(err.Error(), "PodSecurity") {
		return fmt.Errorf("PodSecurity of namespace %s refuses a pod with hostPID and capabilities: --pod-namespace names one with pod-security.kubernetes.io/enforce=privileged: %w", namespace, err)
	}
	// Who may make Jobs need not be allowed to make pods. Limits, quotas and policies refuse, too.
	if err != nil && !(refused(err) && strings.Contains(err.Error(), "cannot create resource")) {
		return fmt.Errorf("namespace %s does not take the pod: %w; --pod-namespace names another", namespace, err)
	}
	err = c.send(ctx, http.MethodPost, "/apis/batch/v1/namespaces/"+namespace+"/jobs", nil, job, &struct{}{})
	if refused(err) {
		return lackRights(namespace, err)
	}
	return err
}

// lackRights adds to an error what the user may not do.
func lackRights(namespace string, err error) error {
	return fmt.Errorf("it needs the rights to create and delete jobs, to list pods and to get pods/proxy in namespace %s: %w", namespace, err)
}

// awaitPod returns the name of a Job's pod once its containers run.
func (c *cluster) awaitPod(ctx context.Context, namespace, job string) (string, error) {
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	last := noPod
	for {
		name, state, err := c.podOf(ctx, namespace, job)
		if err == nil && state == "" {
			return name, nil
		}
		last = cmp.Or(state, last)
		if err != nil && ctx.Err() == nil {
			return "", err
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return "", fmt.Errorf("the pod did not begin within %v: %s", beginning, last)
			}
			return "", try.ErrInterrupted
		case <-poll.C:
		}
	}
}

// watchPod cancels when a Job's pod no longer runs.
func (c *cluster) watchPod(ctx context.Context, namespace, job string, cancel context.CancelCauseFunc) {
	poll := time.NewTicker(5 * pollInterval)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		}
		name, state, err := c.podOf(ctx, namespace, job)
		if ended := (*podError)(nil); errors.As(err, &ended) {
			cancel(ended)
		} else if err == nil && name == "" {
			cancel(&podError{text: "the pod that measures is gone: it was deleted"})
		} else if err == nil && state != "" {
			cancel(&podError{text: "the pod that measures does not run any more: " + state})
		}
	}
}

// podOf returns a Job's pod, and what it waits for; "" if its containers run. The error is why it never will.
func (c *cluster) podOf(ctx context.Context, namespace, job string) (name, waits string, err error) {
	var list struct{ Items []pod }
	if err := c.get(ctx, "/api/v1/namespaces/"+namespace+"/pods", url.Values{"labelSelector": {"batch.kubernetes.io/job-name=" + job}}, &list); err != nil {
		return "", "", err
	}
	if len(list.Items) == 0 {
		return "", noPod, nil
	}
	p := list.Items[0]
	state := p.Status
	if state.Phase == "Failed" && len(state.ContainerStatuses) == 0 || state.Reason == "Evicted" {
		return "", "", &podError{fmt.Sprintf("the node did not keep the pod: %s: %s", state.Reason, state.Message), slices.Contains([]string{"OutOfcpu", "OutOfmemory"}, state.Reason)}
	}
	running := 0
	for _, one := range state.ContainerStatuses {
		switch s := one.State; {
		case s.Running != nil:
			running++
		case s.Terminated != nil:
			return "", "", &podError{text: fmt.Sprintf("container %s ended with exit code %d: %s", one.Name, s.Terminated.ExitCode, cmp.Or(c.log(ctx, namespace, p.Metadata.Name, one.Name), s.Terminated.Reason))}
		case s.Waiting != nil && strings.Contains(s.Waiting.Reason, "Image"):
			return "", "", &podError{text: fmt.Sprintf("the image of container %s cannot be pulled: %s: %s; --registry and --tag name another, --pull-secret the login of a private registry", one.Name, s.Waiting.Reason, s.Waiting.Message)}
		case s.Waiting != nil:
			waits = fmt.Sprintf("container %s waits: %s", one.Name, s.Waiting.Reason)
		}
	}
	if running < 2 {
		waits = cmp.Or(waits, "it is "+cmp.Or(state.Phase, "Pending"))
	}
	return p.Metadata.Name, waits, nil
}

// log returns the last of what a container wrote, if the user may read it: why a kernel without BTF will not do.
func (c *cluster) log(ctx context.Context, namespace, pod, container string) string {
	u := c.base.JoinPath("api/v1/namespaces", namespace, "pods", pod, "log")
	u.RawQuery = url.Values{"container": {container}, "tailLines": {"3"}, "limitBytes": {"4096"}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return ""
	}
	answer, err := c.client.Do(request)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
	if err != nil || answer.StatusCode != http.StatusOK {
		return ""
	}
	return string(text)
}
