//! What the driver's management library (NVML) says about the GPUs of this machine, for a scrape. Where the library is not there,
//! there is nothing to say and no such metric. GPUs are counted as `nvidia-smi` counts them, whatever is hidden from CUDA.

use super::Gauge;

/// One GPU at one moment. What a card does not tell is `None`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sample {
    /// Its number.
    pub gpu: u32,
    /// Share of the last moments in which any kernel was running, 0 to 1.
    pub utilization: Option<f64>,
    /// Bytes of its memory in use, by whichever program.
    pub memory_used: Option<u64>,
    /// Bytes of its memory.
    pub memory_total: Option<u64>,
    /// Watts it draws.
    pub power: Option<f64>,
    /// Its temperature in degrees Celsius.
    pub temperature: Option<f64>,
}

impl Sample {
    /// Sets the gauges.
    pub fn record(&self) {
        let number = self.gpu.to_string();
        let gpu = ("gpu", number.as_str());
        for (gauge, value) in [
            (Gauge::GpuUtilization, self.utilization),
            (Gauge::GpuPower, self.power),
            (Gauge::GpuTemperature, self.temperature),
        ] {
            if let Some(value) = value {
                gauge.set(value, &[gpu]);
            }
        }
        for (kind, bytes) in [("used", self.memory_used), ("total", self.memory_total)] {
            if let Some(bytes) = bytes {
                Gauge::GpuMemory.set(bytes as f64, &[gpu, ("kind", kind)]);
            }
        }
    }
}

/// Looks at all GPUs. The driver may take milliseconds to answer: not for a thread that others wait for.
#[cfg(feature = "cuda")]
pub fn sample() -> Vec<Sample> {
    use std::sync::LazyLock;

    use nvml_wrapper::Nvml;
    use nvml_wrapper::enum_wrappers::device::TemperatureSensor;

    static NVML: LazyLock<Option<Nvml>> = LazyLock::new(|| {
        // With its number: the name without is only there where programs are built.
        let library = Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init();
        library.inspect_err(|error| tracing::info!(%error, "no figures of GPUs in /metrics")).ok()
    });
    let Some(nvml) = &*NVML else { return Vec::new() };
    let look = |gpu: u32| {
        let device = nvml.device_by_index(gpu).ok()?;
        let memory = device.memory_info().ok();
        Some(Sample {
            gpu,
            utilization: device.utilization_rates().ok().map(|rates| f64::from(rates.gpu) / 100.0),
            memory_used: memory.as_ref().map(|memory| memory.used),
            memory_total: memory.as_ref().map(|memory| memory.total),
            power: device.power_usage().ok().map(|milliwatts| f64::from(milliwatts) / 1000.0),
            temperature: device.temperature(TemperatureSensor::Gpu).ok().map(f64::from),
        })
    };
    (0..nvml.device_count().unwrap_or(0)).filter_map(look).collect()
}

/// Without CUDA there is nobody to ask.
#[cfg(not(feature = "cuda"))]
pub fn sample() -> Vec<Sample> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::render;

    #[test]
    fn what_a_card_tells_is_in_the_scrape_and_nothing_else() {
        let sample = Sample {
            gpu: 77,
            utilization: Some(0.5),
            memory_used: Some(3 << 30),
            memory_total: Some(4 << 30),
            temperature: Some(40.0),
            power: None,
        };
        sample.record();
        let text = render(|| ());
        for line in [
            r#"tapline_gpu_utilization_ratio{gpu="77"} 0.5"#,
            r#"tapline_gpu_memory_bytes{gpu="77",kind="used"} 3221225472"#,
            r#"tapline_gpu_memory_bytes{gpu="77",kind="total"} 4294967296"#,
            r#"tapline_gpu_temperature_celsius{gpu="77"} 40"#,
        ] {
            assert!(text.lines().any(|printed| printed == line), "{line}\n{text}");
        }
        assert!(!text.contains(r#"tapline_gpu_power_watts{gpu="77"}"#));
    }
}
