/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one host is: everything that `tandem check`, the plan and the launcher need to
 * know about it, read by system calls, netlink, /sys and /proc, never by running another
 * program.
 *
 * The record is flat and bounded, so that it can be sent by the agent of another host as
 * one JSON document (td_facts_put(), td_facts_get()), which is checked field by field.
 * What a host does not have or does not tell is empty, 0 or -1, as each field says.
 */
#ifndef TD_FABRIC_FACTS_H
#define TD_FABRIC_FACTS_H

#include "base/buf.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/oom.h"
#include "base/status.h"
#include "base/sysmem.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    TD_FACT_NAME = 64,   /* bytes of short names, with the final zero */
    TD_FACT_TEXT = 256,  /* of longer ones */
    TD_FACT_ADDR = 48,   /* an address or CIDR in text */
    TD_FACT_IFNAME = 32, /* of an interface or device */
    TD_FACT_IFACES = 64, /* most of each kind; more are left out */
    TD_FACT_ADDRS = 128,
    TD_FACT_ROUTES = 128,
    TD_FACT_RDMA = 16,
    TD_FACT_GIDS = 32, /* of one RDMA port */
    TD_FACT_GPUS = 16,
    TD_FACT_HOLDERS = 32, /* processes that hold memory */
    TD_FACT_OWN = 8       /* addresses of the host's own name */
};

/* A network interface. */
struct td_iface {
    char name[TD_FACT_IFNAME];
    char kind[TD_FACT_IFNAME]; /* "veth", "bridge", "bond", ...; "" for hardware */
    char mac[TD_FACT_IFNAME];  /* "02:42:.." */
    int64_t index;             /* the kernel's */
    int64_t mtu;
    int64_t mbit; /* speed of the link as it says; 0: it does not say */
    bool up, carrier, loopback;
};

/* An address of an interface. */
struct td_address {
    char text[TD_FACT_ADDR]; /* "192.168.200.12", "fd00::1" */
    char cidr[TD_FACT_ADDR]; /* its network, "192.168.200.0/24" */
    char iface[TD_FACT_IFNAME];
    int64_t prefix; /* bits */
};

/* A route of the main table. */
struct td_route {
    char to[TD_FACT_ADDR];  /* CIDR, or "default" */
    char via[TD_FACT_ADDR]; /* gateway, "" when the network is on the link */
    char iface[TD_FACT_IFNAME];
};

/* An entry of an RDMA port's table of addresses. */
struct td_gid {
    int64_t index;
    char text[TD_FACT_ADDR]; /* as the kernel writes it, eight groups of four digits */
    char type[TD_FACT_IFNAME]; /* "RoCE v2", "IB/RoCE v1" */
    char iface[TD_FACT_IFNAME];
};

/* A port of an RDMA device. */
struct td_rdma {
    char device[TD_FACT_IFNAME]; /* "mlx5_0" */
    int64_t port;                /* from 1 */
    bool active;                 /* state 4 */
    bool ethernet;               /* RoCE; otherwise InfiniBand */
    double gbit;                 /* rate as it says */
    struct td_gid gids[TD_FACT_GIDS];
    int64_t n_gids;
};

/* A GPU, from NVML. */
struct td_gpu_facts {
    char name[TD_FACT_NAME], uuid[TD_FACT_NAME];
    int64_t capability;  /* 90 for 9.0 */
    bool unified;        /* its memory is the host's: total and used are 0 */
    int64_t total, used; /* bytes */
};

/* A process that holds memory. */
struct td_holder {
    int64_t pid;
    int64_t gpu;   /* index of the GPU, -1: memory of the host */
    int64_t bytes; /* 0: not known */
    char command[TD_FACT_NAME];
    char container[TD_FACT_NAME]; /* short id or name of its container or pod, "" */
};

/* A file system. */
struct td_disk {
    char path[TD_FACT_TEXT]; /* as asked */
    int64_t total, free;     /* bytes; free for this user */
};

/* A file of the model. */
struct td_model_file {
    char name[TD_FACT_TEXT];
    int64_t size;
    char
        hash[24]; /* hex: of the header of a safetensors file, of the whole of others */
};

struct td_facts {
    /* the program */
    char host[TD_FACT_TEXT]; /* what the host calls itself */
    char version[TD_FACT_NAME];
    char build[TD_FACT_NAME];
    char program[TD_MAX_PATH]; /* absolute path of the running program */
    char arch[TD_FACT_NAME];   /* "x86_64", "aarch64" */
    char kernel[TD_FACT_NAME];
    char mpi[TD_FACT_TEXT];   /* "Open MPI v4.1.4"; "" when there is none */
    char orted[TD_FACT_TEXT]; /* path of Open MPI's daemon in PATH; "" if none */

    /* processor and memory */
    char cpu[TD_FACT_TEXT];
    int64_t cores;              /* that this process may use */
    struct td_sysmem memory;    /* td_sysmem_available() sums it up */
    struct td_oom_counts kills; /* for lack of memory, so far */

    /* limits; -1: unlimited */
    int64_t memlock, nofile;
    int64_t shm_total, shm_free; /* bytes of /dev/shm */
    struct td_disk disk;         /* of the model's folder, or of the home folder */

    /* networks */
    struct td_iface ifaces[TD_FACT_IFACES];
    struct td_address addrs[TD_FACT_ADDRS];
    struct td_route routes[TD_FACT_ROUTES];
    struct td_rdma rdma[TD_FACT_RDMA];
    struct {
        char text[TD_FACT_ADDR];
    } own[TD_FACT_OWN]; /* of the host's own name */
    int64_t n_ifaces, n_addrs, n_routes, n_rdma, n_own;

    /* GPUs and who holds memory, largest first */
    char driver[TD_FACT_NAME]; /* NVIDIA's; "" when NVML is not there */
    struct td_gpu_facts gpus[TD_FACT_GPUS];
    struct td_holder holders[TD_FACT_HOLDERS];
    int64_t n_gpus, n_holders;

    /* the model, when one was asked for */
    char model[TD_MAX_PATH];        /* absolute path; "": none asked for */
    char model_error[TD_FACT_TEXT]; /* why it cannot be read, "" when it can */
    struct td_model_file *files;    /* owned */
    int64_t n_files;
    int64_t model_bytes; /* of its safetensors files */
};

/* Reads everything but the addresses of the host's own name (td_facts_read_name()) and
 * the model's files (`launch` adds those) into an all-zero record. proc, sys and var
 * are read below `root` ("" for this host; tests give recorded trees); what only system
 * calls tell is this host's. Not knowing something is no failure. */
void td_facts_read(const char *root, struct td_facts *f);

/* The addresses that the host's own name leads to; may wait for a name server. */
void td_facts_read_name(struct td_facts *f);

/* Only the interfaces, addresses and routes. */
void td_facts_read_net(const char *root, struct td_facts *f);

/* Replaces the file system that is looked at: the one of a path. */
void td_facts_read_disk(const char *path, struct td_facts *f);

/* Frees what the record owns. */
void td_facts_release(struct td_facts *f);

/* Appends the record as one JSON object without newlines. */
enum td_status td_facts_put(struct td_buf *out, const struct td_facts *f);

/* Reads such an object into an all-zero record. Lengths, ranges and counts are checked:
 * TD_E_CONFIG names the field. Release the record in any case. */
enum td_status td_facts_get(const json_t *o, const char *where, struct td_facts *f,
                            struct td_error *err);

/* The interface of that name, NULL when there is none. */
const struct td_iface *td_facts_iface(const struct td_facts *f, const char *name);

/* The RDMA port behind an interface, and the index of its RoCE v2 entry for this IPv4
 * address (-1: none). NULL when there is no active one. */
const struct td_rdma *td_facts_rdma(const struct td_facts *f, const char *iface,
                                    const char *addr, int64_t *gid);

/* ---- parts of td_facts_read(), for tests -------------------------------------------- */

/* Adds what the n bytes of rtnetlink messages say: links, addresses, routes. Returns
 * false when they are damaged; what came before stays. *done at the end of a dump. */
bool td_facts_netlink(struct td_facts *f, const void *p, size_t n, bool *done);

/* Speeds and kinds of the interfaces that are known, from /sys/class/net. */
void td_facts_read_speeds(const char *root, struct td_facts *f);

/* RDMA devices from /sys/class/infiniband. */
void td_facts_read_rdma(const char *root, struct td_facts *f);

/* Processes that hold at least `least` bytes of the host's memory, the largest first. */
void td_facts_read_holders(const char *root, int64_t least, struct td_facts *f);

/* GPUs and the processes on them, from a loaded NVML or a stand-in: the table that
 * gpu.c fills with dlsym(). */
struct td_nvml;
void td_facts_read_gpus(const char *root, const struct td_nvml *nvml,
                        struct td_facts *f);

#endif
