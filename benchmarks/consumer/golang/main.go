// Command golang is the arm of the Go library: it drains a topic through the library's listener, or watches one under the
// load of fairness.py. It prints one JSON line, or a line for every handler start, in the form the Python arms use.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/shenqianjin/soften-client-go/soften"
	"github.com/shenqianjin/soften-client-go/soften/checker"
	"github.com/shenqianjin/soften-client-go/soften/config"
	"github.com/shenqianjin/soften-client-go/soften/message"
	"github.com/sirupsen/logrus"
)

// perTenant lets each tenant pass so many messages a second; what is over goes to the library's Pending state.
type perTenant struct {
	lock sync.Mutex
	rate float64
	free map[string]float64
	seen map[string]time.Time
}

func (limit *perTenant) passes(tenant string) bool {
	limit.lock.Lock()
	defer limit.lock.Unlock()
	now := time.Now()
	free, known := limit.free[tenant]
	if known {
		free = min(limit.rate, free+limit.rate*now.Sub(limit.seen[tenant]).Seconds())
	} else {
		free = limit.rate
	}
	limit.seen[tenant] = now
	if free < 1 {
		limit.free[tenant] = free
		return false
	}
	limit.free[tenant] = free - 1
	return true
}

func used() float64 {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func main() {
	url := flag.String("url", "pulsar://127.0.0.1:6650", "binary address of the broker")
	topic := flag.String("topic", "", "ground topic")
	subscription := flag.String("subscription", "", "subscription")
	slots := flag.Uint("slots", 16, "handlers at a time")
	sleep := flag.Duration("sleep", 0, "how long a handler takes")
	messages := flag.Int64("messages", 0, "drain: end after so many")
	watch := flag.Duration("watch", 0, "watch: end after this time, tell every start")
	rate := flag.Float64("pending-above", 0, "watch: messages a second and tenant beyond which they go to Pending")
	flag.Parse()
	logrus.SetOutput(io.Discard) // one line a message otherwise
	log.SetOutput(io.Discard)

	client, err := soften.NewClient(config.ClientConfig{URL: *url, LogLevel: "error"})
	if err != nil {
		panic(err)
	}
	enabled, delay := true, uint(20)
	settings := config.ConsumerConfig{
		Topic: *topic, SubscriptionName: *subscription, Type: pulsar.Shared,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
		Concurrency:                 &config.ConcurrencyPolicy{CorePoolSize: *slots},
	}
	var listener soften.Listener
	if *rate > 0 {
		limit := &perTenant{rate: *rate, free: map[string]float64{}, seen: map[string]time.Time{}}
		settings.LevelPolicy = &config.LevelPolicy{PendingEnable: &enabled, Pending: &config.StatusPolicy{ReentrantDelay: &delay}}
		listener, err = client.CreateListener(settings, checker.PrevHandlePending(
			func(_ context.Context, received message.Message) checker.CheckStatus {
				if limit.passes(received.Properties()["uid"]) {
					return checker.CheckStatusRejected
				}
				return checker.CheckStatusPassed
			}))
	} else {
		listener, err = client.CreateListener(settings)
	}
	if err != nil {
		panic(err)
	}
	var done atomic.Int64
	over := make(chan struct{})
	var lock sync.Mutex
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	began, cpu := time.Now(), used()
	err = listener.Start(context.Background(), func(_ context.Context, received message.Message) (bool, error) {
		if *watch > 0 {
			tenant, sent, _ := strings.Cut(string(received.Payload()), " ")
			lock.Lock()
			fmt.Fprintf(out, "%s %s %.6f\n", tenant, strings.Fields(sent)[0], float64(time.Now().UnixNano())/1e9)
			lock.Unlock()
		}
		if *sleep > 0 {
			time.Sleep(*sleep)
		}
		if done.Add(1) == *messages {
			close(over)
		}
		return true, nil
	})
	if err != nil {
		panic(err)
	}
	if *watch > 0 {
		time.Sleep(*watch)
		lock.Lock()
		_ = out.Flush()
		os.Exit(0)
	}
	<-over
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	fmt.Printf("{\"seconds\": %f, \"cpu_us\": %f, \"rss_mib\": %d}\n",
		time.Since(began).Seconds(), (used()-cpu)*1e6/float64(*messages), usage.Maxrss/1024)
	os.Exit(0)
}
